"""Losses that align the student's kernel with the teacher's over a batch of B recordings.

E (B, d) are the embeddings, K (B, B) is the teacher kernel. Everything is computed in the precision of E, at least
float32, outside automatic mixed precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def centre(K: Tensor) -> Tensor:
    """Doubly centred kernel H K H with H = I - 11'/B."""
    return K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) + K.mean()


def cka(E: Tensor, K: Tensor) -> Tensor:
    """Centred kernel alignment of E E' and K, Equation 5 of the paper.

    <H K_s H, H K H>_F = sum(e * (K e)) with e = H E, so no student kernel is formed unless d > B.

    Parameters
    ----------
    E : Tensor, shape (B, d)
    K : Tensor, shape (B, B)

    Returns
    -------
    Tensor
        Scalar in [-1, 1], [0, 1] for a positive semidefinite K.
    """
    E, K = _at_least_float32(E, K)
    e = E - E.mean(0)
    gram = e @ e.T if E.shape[1] > E.shape[0] else e.T @ e
    return (e * (K @ e)).sum() / (gram.norm() * centre(K).norm())


def unbiased_centre(K: Tensor) -> Tensor:
    """U-centred kernel: zero diagonal, and every row sums to 0 (Szekely & Rizzo 2014)."""
    n = K.shape[0]
    K = K - torch.diag_embed(K.diagonal())
    rows = K.sum(1) / (n - 2)
    U = K - rows[:, None] - rows[None, :] + K.sum() / ((n - 1) * (n - 2))
    return U - torch.diag_embed(U.diagonal())


def cka_debiased(E: Tensor, K: Tensor) -> Tensor:
    """CKA from the unbiased HSIC: 0 in expectation for embeddings that know nothing of the teacher.

    On real data the diagonal is most of the norm of the centred teacher kernel, so the biased CKA of random
    embeddings is high; this one leaves the diagonal out (Song et al. 2012; not in the paper).

    Parameters
    ----------
    E : Tensor, shape (B, d)
    K : Tensor, shape (B, B)
        B > 3.

    Returns
    -------
    Tensor
        Scalar in [-1, 1].
    """
    E, K = _at_least_float32(E, K)
    e = E - E.mean(0)
    S, U = unbiased_centre(e @ e.T), unbiased_centre(K)
    return (S * U).sum() / (S.norm() * U.norm())


def teacher_logits(K: Tensor, temperature: float = 0.2) -> Tensor:
    """Logits -d~^2 / T_t of the KL target, d~^2 standardised over the pairs i != j of the batch; diagonal -inf.

    From distances d^2 = 2 - 2 r; standardised, they equal the standardised correlations (Appendix K of the paper).
    """
    others = ~torch.eye(len(K), dtype=torch.bool, device=K.device)
    squared = 2 - 2 * K
    pairs = squared[others]
    standardised = (squared - pairs.mean()) / pairs.std(correction=0)
    return (-standardised / temperature).masked_fill(~others, -torch.inf)


def kl(E: Tensor, K: Tensor, temperature: float = 0.07, teacher_temperature: float = 0.2) -> Tensor:
    """Mean over i of KL(softmax_{j != i} t_i || softmax_{j != i} s_i), Equation 6 of the paper.

    Parameters
    ----------
    E : Tensor, shape (B, d)
    K : Tensor, shape (B, B)
        Correlation kernel (unit diagonal).
    temperature, teacher_temperature : float
        T and T_t.

    Returns
    -------
    Tensor
        Scalar, not negative.
    """
    E, K = _at_least_float32(E, K)
    n = len(K)
    others = ~torch.eye(n, dtype=torch.bool, device=K.device)
    e = F.normalize(E, dim=1)
    student = (e @ e.T / temperature)[others].view(n, n - 1).log_softmax(1)
    teacher = teacher_logits(K, teacher_temperature)[others].view(n, n - 1).log_softmax(1)
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def diagonal_share(K: Tensor) -> float:
    """Share of the diagonal in the squared norm of the centred teacher kernel.

    Near 1, biased CKA mostly measures that each recording is like itself: a larger batch (or ``cka_debiased``) helps.
    """
    H = centre(K.double())
    return float(H.diagonal().square().sum() / H.square().sum())


def _at_least_float32(E: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    E = E.float() if E.dtype in (torch.float16, torch.bfloat16) else E
    return E, K.to(E.dtype)


LOSSES: dict[str, Loss] = {
    "cka": lambda E, K: 1 - cka(E, K),
    "kl": kl,
    "cka_debiased": lambda E, K: 1 - cka_debiased(E, K),
}
"""Losses by name; the default of the paper is ``cka``."""
