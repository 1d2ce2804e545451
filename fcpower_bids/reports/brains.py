"""A recording on its own brain, and the previews of voxels and of series before cleaning that no table holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from fcpower_bids.core.series import interpolate_censored, power_spectrum
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.names import COVERAGE, SLICES, output_path, preview_path
from fcpower_bids.records import AXIAL, CORONAL, SAGITTAL, Slices
from fcpower_bids.reports.accounts import network_order
from fcpower_bids.reports.figures import draw_bar, shrink
from fcpower_bids.reports.svg import POINTS, STEPS, Box, Drawing, Scale, colours, encode_png, step_of
from fcpower_bids.store import atomic

if TYPE_CHECKING:
    from fcpower_bids.outputs.recording import Results

THUMBNAIL_ROWS, THUMBNAIL_COLUMNS = 12, 48
"""Largest size in pixels: 0.4 kB."""
WHITE = 1.0
"""Standard deviations that are white; neighbours that are averaged vary less than each alone."""
GREYS = 15
NO_PARCEL = (148, 97, 77)
"""Colour of what has no value."""


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
        greys = np.repeat(np.linspace(0, 255, GREYS).round()[:, None], 3, axis=1)
        small = step_of(shrink(preview.carpet, THUMBNAIL_ROWS, THUMBNAIL_COLUMNS), -WHITE, WHITE, GREYS)
        thumbnail = encode_png(small, np.concatenate([greys, [NO_PARCEL]]).astype(np.uint8))
        scaled = np.rint((np.clip(preview.carpet, -CLIP, CLIP) + CLIP) / (2 * CLIP) * (NO_VALUE - 1))
        with atomic(preview_path(coverage)) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                carpet=np.where(np.isfinite(scaled), np.nan_to_num(scaled), NO_VALUE).astype(np.uint8),
                frequencies=preview.frequencies,
                power=preview.power.astype(np.float32),
                thumbnail=np.frombuffer(thumbnail, dtype=np.uint8),
            )


def read_slices(path: Path) -> Slices | None:
    """Read the slices of a recording under an atlas; None where none were kept. Raises DatasetError."""
    if not path.exists():
        return None
    slices = Slices(**_read(path, Slices._fields))
    if (
        len({array.shape for array in slices[:5]}) > 1
        or slices.mean.ndim != 3
        or len(slices.heights) != len(slices.mean)
    ):
        raise DatasetError(f"{path} holds no slices. Remove it; the page does without.")
    return slices


def read_preview(path: Path) -> Preview | None:
    """Read a preview; None where none was kept. Raises DatasetError."""
    if not path.exists():
        return None
    arrays = _read(path, ("carpet", "frequencies", "power"))
    carpet = arrays["carpet"].astype(np.float64) / (NO_VALUE - 1) * 2 * CLIP - CLIP
    carpet[arrays["carpet"] == NO_VALUE] = np.nan
    return Preview(carpet, arrays["frequencies"], arrays["power"].astype(np.float64))


def read_thumbnail(path: Path) -> bytes:
    """Read the small picture of a preview as PNG; nothing where none was kept. Raises DatasetError."""
    return _read(path, ("thumbnail",))["thumbnail"].tobytes() if path.exists() else b""


def _read(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the arrays of a file by their names."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
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


MASK, ATLAS, UNCOVERED, TEMPLATE = (230, 159, 0), (86, 180, 233), (213, 94, 0), (204, 121, 167)
"""Okabe and Ito's orange, sky blue, vermilion and reddish purple."""
WHITE_MATTER = 2
SEEN_THROUGH = 0.35
"""Share of the anatomy in the colour of a parcel."""


def median_tsnr(slices: Slices) -> float:
    """Median over the voxels of the brain that are shown; NaN where none has a value."""
    axial = slices.planes == AXIAL
    known = slices.tsnr[axial][slices.brain[axial] & np.isfinite(slices.tsnr[axial])]
    return float(np.median(known.astype(np.float64))) if known.size else float("nan")


def draw_brain(slices: Slices, coverage: np.ndarray, threshold: float) -> str:
    """Draw rows of slices: outlines on the mean, temporal SNR, coverage (P,), and this from side and front."""
    axial = slices.of(AXIAL)
    stability = np.where(axial.brain, axial.tsnr.astype(np.float64), np.nan)
    known = stability[np.isfinite(stability)]
    highest = max(float(np.percentile(known, 98)), 1e-6) if known.size else 1.0
    inferno, cividis = colours("inferno", STEPS), colours("cividis")
    sides = [view for view in (slices.of(SAGITTAL), slices.of(CORONAL)) if len(view.mean)]
    painted, *turned = (paint_coverage(_grey(view), view, coverage, threshold) for view in (axial, *sides))
    turned = [_beside(outline(picture, view, of_mask_only=True)) for picture, view in zip(turned, sides, strict=True)]
    tall = max((len(picture) for picture in turned), default=0)  # slices of several heights stand on black, centred
    gaps = [(tall - len(picture)) // 2 for picture in turned]
    rooms = [((gap, tall - len(picture) - gap), (0, 0), (0, 0)) for picture, gap in zip(turned, gaps, strict=True)]
    turned = [np.pad(picture, room) for picture, room in zip(turned, rooms, strict=True)]
    rows: list[tuple[str, np.ndarray, np.ndarray | None]] = [
        ("mean", _beside(outline(_grey(axial), axial)), None),
        ("temporal SNR", _beside(step_of(np.nan_to_num(stability), 0, highest)), inferno),
        ("coverage", _beside(painted), None),
        *([("from side, front", np.concatenate(turned, axis=1), None)] if turned else []),
    ]
    wide = 8.9 * POINTS
    heights = [wide / picture.shape[1] * picture.shape[0] for _, picture, _ in rows]
    drawing = Drawing(9.6, (sum(heights) + 14 * (len(rows) - 2)) / POINTS)
    tops = np.cumsum([0, *heights[:2], heights[2] + 14])
    boxes = [Box(0.025 * drawing.width, top, wide, tall) for top, tall in zip(tops, heights, strict=False)]
    for box, (title, picture, palette) in zip(boxes, rows, strict=True):
        drawing.image(box, encode_png(picture, palette), picture.shape[1])
        drawing.text(box.left - 5, box.top + box.height / 2, title, 8, turned=True)
    n = len(axial.mean)
    for box in boxes[:3]:
        for place, side in ((0.03, "L"), (n - 0.03, "R")):
            drawing.text(box.left + place / n * wide, box.bottom - 3, side, 8, fill="#fff", font_weight="bold")
    _name_places(drawing, boxes[2], (axial,))
    if turned:
        _name_places(drawing, boxes[3], sides)
    for box, palette, reach in ((boxes[1], inferno, highest), (boxes[2], cividis, 1.0)):
        bar = Box(0.96 * drawing.width, box.top + 0.15 * box.height, 6.2, 0.7 * box.height)
        draw_bar(drawing, bar, palette, Scale(0.0, reach), size=7)
    # the colours below the threshold are the one that says so
    below = Box(bar.left, bar.bottom - threshold * bar.height, bar.width, threshold * bar.height)
    drawing.rectangle(below, "#" + bytes(UNCOVERED).hex())
    return drawing.svg()


def _grey(slices: Slices) -> np.ndarray:
    return np.repeat((slices.mean // (256 // STEPS) * (256 // STEPS))[..., None], 3, axis=-1).astype(np.uint8)


def _name_places(drawing: Drawing, row: Box, groups: Sequence[Slices]) -> None:
    """Write where each slice lies below it."""
    widths = [view.mean.shape[2] for view in groups for _ in view.heights]
    names = [
        f"{'xyz'[plane]} = {place:.0f}"
        for view in groups
        for plane, place in zip(view.planes, view.heights, strict=True)
    ]
    for name, width, end in zip(names, widths, np.cumsum(widths), strict=True):
        drawing.text(row.left + (end - width / 2) / sum(widths) * row.width, row.bottom + 10, name, 7.5)


def _beside(pictures: np.ndarray) -> np.ndarray:
    """Put slices (n, rows, columns, ...) side by side."""
    return np.concatenate(list(pictures), axis=1)


def outline(grey: np.ndarray, slices: Slices, of_mask_only: bool = False) -> np.ndarray:
    """Draw on slices (n, rows, columns, 3), at twice their resolution, the rims of white matter, atlas and mask."""
    shown, brain, parcels, template = (
        picture.repeat(2, axis=1).repeat(2, axis=2) for picture in (grey, slices.brain, slices.parcels, slices.template)
    )
    if not of_mask_only:
        for within, colour in ((parcels > 0, ATLAS), (template == WHITE_MATTER, TEMPLATE)):
            rim = borders(within)
            shown[rim] = (0.3 * shown[rim] + 0.7 * np.array(colour)).astype(np.uint8)
    shown[borders(brain)] = MASK
    return shown


def borders(regions: np.ndarray) -> np.ndarray:
    """Return which pixels (n, rows, columns) lie in a region and next to a pixel of another one."""
    bordering = np.zeros(regions.shape, dtype=bool)
    for axis in (1, 2):
        region, other = np.moveaxis(regions, axis, 0)[:-1], np.moveaxis(regions, axis, 0)[1:]
        seen = np.moveaxis(bordering, axis, 0)
        differ = region != other
        seen[:-1] |= differ & (region > 0)
        seen[1:] |= differ & (other > 0)
    return bordering


def paint_coverage(grey: np.ndarray, slices: Slices, coverage: np.ndarray, threshold: float) -> np.ndarray:
    """Colour parcels by their coverage over the anatomy (n, rows, columns, 3)."""
    seen = colours("cividis", STEPS)[step_of(np.nan_to_num(coverage), 0, 1)].astype(np.float64)
    seen[~(coverage >= threshold)] = UNCOVERED
    shown = grey.copy()
    within = slices.parcels > 0
    mixed = SEEN_THROUGH * grey[within] + (1 - SEEN_THROUGH) * seen[slices.parcels[within].astype(int) - 1]
    shown[within] = mixed.astype(np.uint8)
    shown[within & ~slices.brain] = UNCOVERED
    return shown
