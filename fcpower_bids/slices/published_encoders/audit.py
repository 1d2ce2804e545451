"""Which order of parcels, and which architecture, does a foreign checkpoint seem to expect? Measured, not believed.

Recordings are embedded with their parcels in every candidate order. Under the order of training, similarity of
embeddings should follow similarity of connectomes best: debiased alignment (CKA) of the linear kernel of the
embeddings with the correlation kernel of the edges of FC^0.35. It is a hint, not a proof: it needs real weights and at
least some dozens of recordings, and the row ``shuffled`` shows what no order at all reaches. Of F-BERT, everything
that changes its numbers and that its ``config.json`` does not state is tried as well.

Run it with ``python -m fcpower_bids.slices.published_encoders.audit --help``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.filters.alignment import kernel_alignment
from fcpower_bids.core.regression.kernels import correlation_kernel, linear_kernel
from fcpower_bids.encoders import PUBLISHED, load_encoder
from fcpower_bids.errors import FcPowerError, RecordingError, UsageError
from fcpower_bids.slices.published_encoders.cohort import read_series_tables
from fcpower_bids.slices.published_encoders.parcel_orders import Columns, parcel_order
from fcpower_bids.store import write_text

FEWEST = 8


def candidate_orders(columns: ArrayLike, names: Sequence[str], seed: int = 0) -> dict[str, Columns]:
    """Orders to try, as positions in the recording. Shapes and units: columns (P,)."""
    declared = np.asarray(columns)
    present = np.flatnonzero(declared >= 0)
    taken = declared[present]
    half = len(taken) // 2
    tried = {
        "declared": taken,
        "as recorded": np.sort(taken),
        "alphabetical": np.array(sorted(taken, key=lambda column: names[column])),
        "reversed": taken[::-1],
        "halves swapped": np.roll(taken, half),
        "last 50 first": np.roll(taken, 50),
        "first 50 last": np.roll(taken, -50),
        "shuffled": np.random.default_rng(seed).permutation(taken),
    }
    orders = {}
    for name, order in tried.items():
        whole = declared.copy()
        whole[present] = order
        orders[name] = whole
    return orders


def other_release(atlas: str, names: Sequence[str]) -> dict[str, Columns]:
    """Return the order of the other release (7 or 17 networks) of the atlas, where it has the same parcels."""
    other = atlas.removesuffix("x17") if atlas.endswith("x17") else f"{atlas}x17"
    try:
        return {f"as {other}": parcel_order(other).match(names)}
    except FcPowerError:
        return {}


def power_kernel(series: Sequence[ArrayLike], alpha: float = ALPHA_STAR) -> NDArray[np.float64]:
    """Correlation kernel (n, n) of the edges of FC^alpha of n recordings (T_i, P); equations 1 and 2 of the paper."""
    edges = [vectorise_edges(spectral_power(pearson_connectivity(one), alpha)) for one in series]
    return np.asarray(correlation_kernel(np.stack(edges)))


def audit_orders(
    encoder: Any,
    series: Sequence[ArrayLike],
    parcel_names: Sequence[str],
    repetition_time: float,
    candidates: Mapping[str, ArrayLike] | None = None,
) -> dict[str, float]:
    """Score every candidate order. Shapes and units: repetition_time (seconds). Raises RecordingError."""
    if len(series) < FEWEST:
        raise RecordingError(f"The audit needs at least {FEWEST} recordings to compare orders, not {len(series)}.")
    declared = encoder.columns(parcel_names)
    arrays = [np.asarray(one) for one in series]
    used = declared[declared >= 0]
    target = power_kernel([array[:, used] for array in arrays])
    scores = {}
    if candidates is None:
        candidates = candidate_orders(declared, parcel_names) | other_release(encoder.recipe.atlas, parcel_names)
    for name, order in candidates.items():
        moved = np.asarray(order)
        swapped = [_moved(array, declared, moved) for array in arrays]
        embedded = encoder.embed(swapped, parcel_names, repetition_time).astype(np.float64)
        scores[name] = kernel_alignment(linear_kernel(embedded - embedded.mean(axis=0)), target, debiased=True)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def _moved(array: NDArray[Any], declared: Columns, wanted: Columns) -> NDArray[Any]:
    """Put into the column that the encoder takes for each input the one that the candidate has there."""
    moved = array.copy()
    present = declared >= 0
    moved[:, declared[present]] = array[:, wanted[present]]
    return moved


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fcpower_bids.slices.published_encoders.audit", description=__doc__)
    parser.add_argument("encoder", help="name of a published encoder, or fbert")
    parser.add_argument("weights", help="its weights")
    parser.add_argument("series", nargs="+", type=Path, help="*_timeseries.tsv of at least 8 people, same parcels")
    parser.add_argument("--repetition-time", type=float, required=True, help="seconds between volumes")
    parser.add_argument(
        "--encoder-aux", "--encoder-config", nargs="+", type=Path, default=[], help="further files of the model"
    )
    parser.add_argument("--encoder-protocol", default="own", help="own or paper")
    parser.add_argument("--write", type=Path, help="of fbert: write what is best for --encoder-config")
    parser.add_argument("--accept-encoder-licence", action="store_true", help="you accept the licence of the weights")
    chosen = parser.parse_args(arguments)
    try:
        text = _audit_fbert(chosen) if chosen.encoder == "fbert" else _audit_files(chosen)
    except FcPowerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(text)
    return 0


def _audit_fbert(chosen: argparse.Namespace) -> str:
    from fcpower_bids.slices.published_encoders.fbert_audit import audit_fbert, stated_fields  # loads torch

    names, series = read_series_tables(chosen.series)
    if len(series) < FEWEST:
        raise RecordingError(f"The audit needs at least {FEWEST} recordings to compare orders, not {len(series)}.")
    weights, orders = Path(chosen.weights), candidate_orders(np.arange(len(names)), names)
    known = stated_fields(weights, chosen.encoder_aux)
    audit = audit_fbert(weights, known, series, names, orders, power_kernel(series))
    if chosen.write is not None:
        write_text(chosen.write, audit.best_fields())
    return audit.text()


def _audit_files(chosen: argparse.Namespace) -> str:
    if chosen.encoder not in PUBLISHED:
        raise UsageError(f"The audit is for fbert and the encoders {', '.join(PUBLISHED)}, not {chosen.encoder}.")
    names, series = read_series_tables(chosen.series)
    encoder: Any = load_encoder(
        chosen.encoder,
        chosen.weights,
        parcel_names=names,
        protocol=chosen.encoder_protocol,
        aux=tuple(chosen.encoder_aux),
        accept_licence=chosen.accept_encoder_licence,
    )
    scores = audit_orders(encoder, series, names, chosen.repetition_time)
    return "order\tdebiased_cka\n" + "".join(f"{name}\t{score:.4f}\n" for name, score in scores.items())


if __name__ == "__main__":
    raise SystemExit(main())
