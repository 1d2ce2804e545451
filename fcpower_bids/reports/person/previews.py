"""Previews of voxels and of series before cleaning, which no table holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from fcpower_bids.core.series import interpolate_censored, power_spectrum
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.names import COVERAGE, SLICES, output_path, preview_path
from fcpower_bids.records import Slices
from fcpower_bids.records.recordings import AXIAL
from fcpower_bids.reports.kit.figures import shrink
from fcpower_bids.reports.kit.images import encode_png, step_of
from fcpower_bids.reports.person.recording_facts import network_order
from fcpower_bids.store import atomic

if TYPE_CHECKING:
    from fcpower_bids.outputs.recording import Results

THUMBNAIL_ROWS, THUMBNAIL_COLUMNS = 12, 48
"""Largest size in pixels: 0.4 kB."""
LIMIT = 1.0
"""Standard deviations that are white; neighbours that are averaged vary less than each alone."""
GREYS = 15
UNCOVERED = (148, 97, 77)
"""Colour of what has no value."""


def draw_thumbnail(carpet: np.ndarray) -> bytes:
    """Return a carpet in standard deviations, shape (rows, columns), as PNG; NaN has a colour of its own."""
    greys = np.repeat(np.linspace(0, 255, GREYS).round()[:, None], 3, axis=1)
    palette = np.concatenate([greys, [UNCOVERED]]).astype(np.uint8)
    return encode_png(step_of(shrink(carpet, THUMBNAIL_ROWS, THUMBNAIL_COLUMNS), -LIMIT, LIMIT, GREYS), palette)


ROWS, COLUMNS = 150, 900
"""Largest size of a carpet; neighbours are averaged down to it."""
CLIP, NO_VALUE = 3.0, 255
BRIGHTEST = 99.5
"""Percentile of the mean image that is white."""


@dataclass(frozen=True, eq=False)
class Preview:
    """Carpet (rows, columns) in standard deviations, and mean power spectrum of a series of variance 1."""

    carpet: np.ndarray
    frequencies: np.ndarray
    power: np.ndarray


def write_previews(output_dir: Path, results: Results) -> None:
    """Keep a preview of every atlas's series before cleaning."""
    for series, atlas in zip(results.series, results.atlases, strict=True):
        coverage = output_path(output_dir, results.recording, COVERAGE, atlas)
        if series.slices is not None:  # the mean in 255 steps from black to white, the rest as it is
            known = series.slices.mean[np.isfinite(series.slices.mean)]
            white = max(float(np.percentile(known, BRIGHTEST)), 1e-9) if known.size else 1.0
            mean = np.rint(np.clip(np.nan_to_num(series.slices.mean) / white, 0, 1) * 255).astype(np.uint8)
            shown = series.slices._replace(mean=mean, tsnr=series.slices.tsnr.astype(np.float16))
            with atomic(preview_path(coverage, SLICES)) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **shown._asdict())
        kept = results.cleaning.kept
        if results.cleaning.excluded:  # too few are kept to draw; the reader wants to see why
            kept = np.arange(len(kept)) >= results.cleaning.n_dummy
        if not len(series.raw) or kept.sum() < 3:
            continue
        whole = standardise_trend(series.raw, kept)
        preview = make_preview(whole, kept, results.cleaning.repetition_time, atlas.networks)
        scaled = np.rint((np.clip(preview.carpet, -CLIP, CLIP) + CLIP) / (2 * CLIP) * (NO_VALUE - 1))
        with atomic(preview_path(coverage)) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                carpet=np.where(np.isfinite(scaled), np.nan_to_num(scaled), NO_VALUE).astype(np.uint8),
                frequencies=preview.frequencies,
                power=preview.power.astype(np.float32),
                thumbnail=np.frombuffer(draw_thumbnail(preview.carpet), dtype=np.uint8),
            )


def read_slices(path: Path) -> Slices | None:
    """Read the slices of a recording under an atlas; None where none were kept. Raises DatasetError."""
    if not path.exists():
        return None
    arrays = _read(path, ("mean", "tsnr", "brain", "parcels", "heights")) | _read(path, Slices._fields, needed=False)
    n, none = len(arrays["mean"]), np.zeros_like(arrays["parcels"])
    older = {"planes": np.full(n, AXIAL), "template": none, "dice": np.array(np.nan)}  # which earlier files lack
    found = Slices(**older | arrays)
    if len({one.shape for one in found[:5]}) > 1 or found.mean.ndim != 3 or len(found.heights) != len(found.mean):
        raise DatasetError(f"{path} holds no slices. Remove it; the page does without.")
    return found


def read_preview(path: Path) -> Preview | None:
    """Read a preview; None where none was kept. Raises DatasetError."""
    if not path.exists():
        return None
    found = _read(path, ("carpet", "frequencies", "power"))
    carpet = found["carpet"].astype(np.float64) / (NO_VALUE - 1) * 2 * CLIP - CLIP
    carpet[found["carpet"] == NO_VALUE] = np.nan
    return Preview(carpet, found["frequencies"], found["power"].astype(np.float64))


def read_thumbnail(path: Path) -> bytes:
    """Read the small picture of a preview as PNG; nothing where none was kept. Raises DatasetError."""
    found = _read(path, ("thumbnail",), needed=False) if path.exists() else {}
    return found["thumbnail"].tobytes() if found else b""


def _read(path: Path, names: Iterable[str], needed: bool = True) -> dict[str, np.ndarray]:
    """Return the arrays of a file by their names; all have to be there if they are needed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names if needed or name in file}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DatasetError(f"{path} cannot be read ({error}). Remove it; the page does without.") from error


def make_preview(series: np.ndarray, kept: np.ndarray, repetition_time: float, networks: tuple[str, ...]) -> Preview:
    """Carpet and mean power spectrum of a standardised series (T, P), kept (T,), repetition time in seconds."""
    carpet = shrink(series[:, network_order(networks)].T, ROWS, COLUMNS)
    covered = np.isfinite(series[kept]).all(axis=0)
    first, last = np.flatnonzero(kept)[[0, -1]]
    span, present = series[first : last + 1, covered], kept[first : last + 1]
    bridged = interpolate_censored(np.where(present[:, None], span, 0.0), present)
    frequencies, power = power_spectrum(bridged, repetition_time)
    return Preview(carpet, frequencies, power.mean(axis=1) if covered.any() else np.full(len(frequencies), np.nan))


def standardise_trend(series: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Remove each parcel's line and divide by its standard deviation, both taken from the kept volumes."""
    time = np.linspace(-1, 1, len(series))
    covered = np.isfinite(series[kept]).all(axis=0)
    standard = np.full(series.shape, np.nan)
    line = np.polynomial.polynomial.polyfit(time[kept], series[kept][:, covered], 1)
    flat = series[:, covered] - np.polynomial.polynomial.polyval(time, line).T
    deviation = flat[kept].std(axis=0, ddof=1)
    rounding = 1e-9 * np.abs(series[kept][:, covered]).max(axis=0)
    standard[:, covered] = np.where(deviation > rounding, flat / np.maximum(deviation, 1e-300), 0.0)
    return standard
