"""Everything that changes the numbers of F-BERT and that a checkpoint does not state, tried on recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fcpower_bids.core.filters.alignment import kernel_alignment
from fcpower_bids.core.regression.kernels import linear_kernel
from fcpower_bids.encoders.checkpoints import (
    CheckpointError,
    ModelCard,
    load_strictly,
    locate,
    read_fields,
    read_tensors,
)
from fcpower_bids.encoders.embedding import SeriesEncoder
from fcpower_bids.encoders.fbert import ACTIVATIONS, FBert, FBertConfig
from fcpower_bids.encoders.loading import RELEASED, rename_keys

TRIED: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "norm_first": (False, True),
    "final_norm": (False, True),
    "pe": ("sinusoidal", "sinusoidal_halves", "none"),
    "cls_position": (True, False),
}
"""Values of fields that change what a model computes and that no tensor shows."""
CONFIDENCE = 0.95


def stated_fields(weights: Path, aux: Sequence[Path]) -> dict[str, Any]:
    """Return what the card of a model, its ``config.json`` and further files say of it. Raises CheckpointError."""
    known = dict(RELEASED.get(str(weights), {}))
    for file in (locate(weights) / "config.json", *aux):
        known |= read_fields(file)[1]
    return known


@dataclass(frozen=True, eq=False)
class FBertAudit:
    """Candidates and how well each follows FC^0.35."""

    candidates: list[dict[str, Any]]  # ``order`` and the fields that were tried
    orders: Mapping[str, tuple[str, ...]]
    kernels: list[NDArray[np.float64]]  # (n, n) each, of the embeddings
    target: NDArray[np.float64]  # (n, n): of FC^0.35
    known: Mapping[str, Any]

    @property
    def scores(self) -> NDArray[np.float64]:
        """Debiased alignment of each candidate."""
        return np.array([kernel_alignment(kernel, self.target, debiased=True) for kernel in self.kernels])

    def leads(self) -> pd.DataFrame:
        """By field: the best value, its lead over any other, and the lower limit by leaving out recordings."""
        scores, rows = self.scores, []
        best = int(scores.argmax())
        for field, value in self.candidates[best].items():
            others = [i for i, one in enumerate(self.candidates) if one[field] != value]
            if others:
                other = max(others, key=lambda i: scores[i])
                low = self._lower_limit(best, other)
                lead = {"lead": scores[best] - scores[other], "lead_low": low, "decided": "yes" if low > 0 else "no"}
                rows.append({"field": field, "best": value, **lead})
        return pd.DataFrame(rows, columns=["field", "best", "lead", "lead_low", "decided"])

    def _lower_limit(self, best: int, other: int) -> float:
        n = len(self.target)
        kept = [np.ix_(*[np.delete(np.arange(n), i)] * 2) for i in range(n)]
        one, two = (
            np.array([kernel_alignment(self.kernels[k][at], self.target[at], debiased=True) for at in kept])
            for k in (best, other)
        )
        spread = np.sqrt((n - 1) / n * ((one - two - (one - two).mean()) ** 2).sum())
        scores = self.scores
        return float(scores[best] - scores[other] - stats.t.ppf(CONFIDENCE, n - 1) * spread)

    def text(self) -> str:
        """Two tables: by field how far the best value is ahead, and all candidates."""
        table = pd.DataFrame(self.candidates).assign(debiased_cka=self.scores)
        ranked = table.sort_values("debiased_cka", ascending=False, kind="stable")
        written = (one.to_csv(sep="\t", index=False, float_format="%.4f") for one in (self.leads(), ranked))
        return "\n".join(written)

    def best_fields(self) -> str:
        """JSON of the fields of the best candidate that the model does not state, and of its parcels."""
        best = self.candidates[int(self.scores.argmax())]
        chosen = {**_defaults(), **best, "roi_labels": self.orders[best["order"]]}
        del chosen["order"]
        missing = {key: value for key, value in chosen.items() if key not in self.known}
        return json.dumps(missing, indent=2, ensure_ascii=False) + "\n"


def _defaults() -> dict[str, Any]:
    """Return fields that hardly change what a trained model computes."""
    return {field.name: field.default for field in fields(FBertConfig) if field.name in ("norm_eps", "dropout")}


def audit_fbert(
    weights: Path,
    known: Mapping[str, Any],
    series: Sequence[ArrayLike],
    names: Sequence[str],
    tried_orders: Mapping[str, NDArray[np.intp]],
    target: NDArray[np.float64],
) -> FBertAudit:
    """Embed recordings (T_i, P) by every candidate; `target` (n, n) is the kernel of their FC^0.35."""
    state = rename_keys(read_tensors(locate(weights) / "model.safetensors"))
    orders = _orders(known, names, tried_orders)
    candidates, kernels = [], []
    for tried in _combinations(known):
        model = _build({**_defaults(), "n_parcels": len(names), **known, **tried}, state, str(weights))
        if model is None:
            continue
        for order, labels in orders.items():
            card = ModelCard(labels, window=min(len(np.asarray(one)) for one in series))
            embedded = SeriesEncoder("fbert", model, card, {}).embed(series, names, np.nan).astype(np.float64)
            candidates.append({"order": order, **tried})
            kernels.append(linear_kernel(embedded - embedded.mean(axis=0)))
    if not candidates:
        raise CheckpointError(f"The tensors of {weights} fit no F-BERT of the fields that are stated.")
    return FBertAudit(candidates, orders, kernels, target, known)


def _orders(
    known: Mapping[str, Any], names: Sequence[str], tried: Mapping[str, NDArray[np.intp]]
) -> dict[str, tuple[str, ...]]:
    if "roi_labels" in known:
        return {"stated": tuple(known["roi_labels"])}
    lists = {name: tuple(names[i] for i in order) for name, order in tried.items() if name != "declared"}
    return {name: labels for i, (name, labels) in enumerate(lists.items()) if labels not in list(lists.values())[:i]}


def _combinations(known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    unstated = {field: values for field, values in TRIED.items() if field not in known}
    for values in product(*unstated.values()):
        yield dict(zip(unstated, values, strict=True))


def _build(values: Mapping[str, Any], state: Mapping[str, Any], source: str) -> FBert | None:
    """Return the model, or None where the tensors are not those of such a one."""
    if missing := [field.name for field in fields(FBertConfig) if field.name not in values]:
        raise CheckpointError(f"{source} does not state {', '.join(missing)}; give them with --encoder-config.")
    try:
        model = FBertConfig(**{field.name: values[field.name] for field in fields(FBertConfig)}).build()
        load_strictly(model, state, source)
    except (CheckpointError, TypeError, ValueError):
        return None
    return model.eval()
