"""The dense operations of kernel ridge regression by PyTorch on a device, in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.dense import TOO_SMALL, Gram, HeldOut
from fcpower_bids.errors import Unfit, UsageError

DEVICES = ("cuda", "cpu")


class TorchDense:
    """Kernels and inverses lie on the device; products with the targets and residuals come back. Raises UsageError."""

    shared = False

    def __init__(self, device: str) -> None:
        try:
            self.device = torch.device(device)
            if self.device.type not in DEVICES:
                raise RuntimeError(f"only {' and '.join(DEVICES)} are known to have double precision")
            self._send(np.ones((2, 2)))
        except (RuntimeError, TypeError, AssertionError) as error:
            said = str(error).strip().partition("\n")[0]
            raise UsageError(
                f"--solver-device {device} cannot be used here ({said}). Give cuda where PyTorch sees a GPU, or leave "
                "the option out."
            ) from error
        self.name = f"PyTorch {torch.__version__} on {device}"

    def gram(self, n: int, dtype: type[np.floating]) -> Gram:
        """Begin the inner products of n rows; panels come in their precision."""
        return _TorchGram(torch.zeros((n, n), dtype=torch.float64, device=self.device))

    def invert(self, kernel: FloatArray, penalty: float, intercept: bool) -> Tensor | None:
        """(K + l I)^-1, with an intercept less the direction of the ones; None where singular to working precision."""
        penalised = torch.tensor(kernel, dtype=torch.float64, device=self.device)
        penalised.diagonal().add_(penalty)
        norm = _norm(penalised)
        factor, failed = torch.linalg.cholesky_ex(penalised)
        del penalised
        if failed:
            return None
        inverse = torch.cholesky_inverse(factor)
        if 1 / (norm * _norm(inverse)) < len(kernel) * np.finfo(float).eps:
            return None
        if intercept:
            ones = inverse.sum(dim=1)
            inverse.addr_(ones, ones / ones.sum(), alpha=-1)
        return inverse

    def multiply(self, inverse: Tensor, targets: FloatArray) -> FloatArray:
        """Multiply targets (n, m) by an inverse."""
        return _back(inverse @ self._send(targets))

    def hold_out(
        self, inverse: Tensor, held: HeldOut, product: FloatArray, inner_products: Sequence[FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return what held rows have beyond their predictions: see `core.regression.dense.Dense`."""
        rows_held = inverse[self._send(held.rows)]
        root = _root(rows_held[:, self._send(held.rows)])
        half = _solve(root, self._send(product[held.rows]))
        validation = []
        for rows, own in zip(held.inner, inner_products, strict=True):
            chosen = self._send(rows)
            block = _solve(root, rows_held[:, chosen])
            own_half = half if own is product else _solve(root, self._send(own[held.rows]))
            schur = _root(inverse[chosen][:, chosen] - block.T @ block)
            residual = self._send(own[rows]) - block.T @ own_half
            validation.append(_back(_solve(schur, _solve(schur, residual), transposed=True)))
        return _back(_solve(root, half, transposed=True)), validation

    def _send(self, values: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values), device=self.device)


class _TorchGram:
    def __init__(self, total: Tensor) -> None:
        self.sum = total

    def add(self, panel: NDArray[np.floating]) -> None:
        sent = torch.as_tensor(panel, device=self.sum.device)
        self.sum += sent @ sent.T

    def total(self) -> FloatArray:
        return _back(self.sum)


def _norm(matrix: Tensor) -> float:
    """Largest sum of absolute values of a row."""
    return float(torch.linalg.matrix_norm(matrix, float("inf")))


def _root(matrix: Tensor) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed:
        raise Unfit(TOO_SMALL)
    return factor


def _solve(root: Tensor, right: Tensor, transposed: bool = False) -> Tensor:
    """Solve with a lower triangle, or with its transpose."""
    return torch.linalg.solve_triangular(root.T if transposed else root, right, upper=transposed)


def _back(values: Tensor) -> FloatArray:
    return np.asarray(values.cpu().numpy())
