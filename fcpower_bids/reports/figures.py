"""Drawings of one recording as SVG text, images in them, with its own brain; and the previews that no table holds."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from fcpower_bids.core.series import interpolate_censored, power_spectrum
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.dataset import COVERAGE, path_of, preview_path
from fcpower_bids.records import Slices
from fcpower_bids.reports.accounts import network_order
from fcpower_bids.reports.svg import BEFORE, DOTS, POINTS, SMALL, Axes, Box, Drawing, Scale, around
from fcpower_bids.store import atomic

if TYPE_CHECKING:
    from fcpower_bids.outputs.recording import Results

CENSORED, DUMMY = "#E69F00", "#999999"
"""Okabe and Ito's colours, distinguishable with every colour vision; line style or text repeats their meaning."""
LARGE = 400
"""Most rows of a matrix that are drawn."""
RIGHT = 0.905
"""End of the time axis, of 1; names of networks follow."""
MOST_NETWORKS, ROOM_FOR_NAME = 40, 0.055
"""Above so many they mean nothing; smaller shares of a carpet have no name."""
TRACE, CARPET, GAP = 0.8 * POINTS, 1.36 * POINTS, 8.0
"""Heights over the axis of time, and what is between them."""
LIMIT = 2.0
"""Standard deviations from which on a carpet is black or white."""
COLOURS = Path(__file__).parents[1] / "data" / "report" / "colours.json"
"""The colours of each map as ``rrggbb``, 256 or all it has: those of matplotlib, which takes half a second to load."""
STEPS = 16
"""Colours of an image: the eye distinguishes no more in noise, and a page with many images stays small."""


@lru_cache(maxsize=8)
def colour_table(name: str) -> list[str]:
    """Return the colours of a map as ``rrggbb``."""
    joined = json.loads(COLOURS.read_text(encoding="ascii"))[name]
    return [joined[start : start + 6] for start in range(0, len(joined), 6)]


def colours(name: str, steps: int = 256) -> np.ndarray:
    """Return so many colours of a map from its beginning to its end, uint8 of shape (steps, 3)."""
    whole = np.frombuffer(bytes.fromhex("".join(colour_table(name))), dtype=np.uint8).reshape(-1, 3)
    return whole[np.rint(np.linspace(0, len(whole) - 1, steps)).astype(int)]


def step_of(values: np.ndarray, low: float, high: float, steps: int = STEPS) -> np.ndarray:
    """Return which of so many equal steps between low and high each value lies in; what is not finite, in one more."""
    with np.errstate(invalid="ignore"):
        step = np.clip((np.nan_to_num(values) - low) * (steps / ((high - low) or 1.0)), 0, steps - 1)
    return np.where(np.isfinite(values), step, steps).astype(np.uint8)


def encode_png(pixels: np.ndarray, palette: np.ndarray | None = None) -> bytes:
    """Return a PNG of places in a palette (rows, columns), or of colours (rows, columns, 3), both uint8."""
    rows, columns = pixels.shape[:2]
    few = palette is not None and len(palette) <= 16
    depth, kind = (4 if few else 8), (2 if palette is None else 3)
    lines = pixels.reshape(rows, -1)
    if few:
        pairs = np.zeros((rows, columns + columns % 2), dtype=np.uint8)
        pairs[:, :columns] = lines
        lines = pairs[:, ::2] << 4 | pairs[:, 1::2]
    filtered = np.concatenate([np.zeros((rows, 1), dtype=np.uint8), lines], axis=1)  # 0: each line as it is
    chunks = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, depth, kind, 0, 0, 0))]
    if palette is not None:
        chunks.append(_chunk(b"PLTE", palette.astype(np.uint8).tobytes()))
    return b"".join([*chunks, _chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9)), _chunk(b"IEND", b"")])


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def draw_motion(
    volumes: Mapping[str, np.ndarray],
    threshold: float,
    repetition_time: float,
    carpets: Mapping[str, np.ndarray],
    networks: Sequence[tuple[str, float, float]] = (),
) -> str:
    """Draw displacement, threshold (mm), DVARS (T,) and carpets (rows, T) over one axis of time."""
    traces = [("framewise_displacement", "FD (mm)"), ("dvars", "DVARS")]
    traces = [(name, label) for name, label in traces if np.isfinite(volumes[name]).any()]
    heights = [TRACE] * len(traces) + [CARPET] * len(carpets)
    scale, unit = (repetition_time / 60, "minutes") if repetition_time else (1.0, "volumes")
    time = Scale(-0.5 * scale, (len(volumes["kept"]) - 0.5) * scale)
    drawing = Drawing(9.6, (sum(heights) + GAP * len(heights) + 28) / POINTS)
    wide = ((RIGHT if carpets else 0.995) - 0.07) * drawing.width
    tops = np.cumsum([6.0, *(height + GAP for height in heights)])
    boxes = [Box(0.07 * drawing.width, float(top), wide, tall) for top, tall in zip(tops, heights, strict=False)]
    for box, (name, label) in zip(boxes, traces, strict=False):
        motion = name == "framewise_displacement"
        limit = threshold if motion else 0.0
        # motion from 0 to beyond its limit where there is one; 1 mm where nothing moves
        reach = Scale(0.0, max(1.15 * float(np.nanmax(volumes[name])), 1.3 * limit) or 1.0)
        axes = Axes(drawing, box, time, reach if motion else around(volumes[name]))
        _shade_volumes(axes, volumes, scale)
        axes.plot(np.arange(len(volumes[name])) * scale, volumes[name])
        if limit:
            axes.level(limit, BEFORE, dashes="4 2")
        axes.frame_left(label, most=4, far=36)
    for box, (title, carpet) in zip(boxes[len(traces) :], carpets.items(), strict=True):
        size = round(box.height * DOTS / POINTS), round(box.width * DOTS / POINTS)  # no finer
        drawing.image(box, *draw_carpet(carpet, *size, LIMIT))
        drawing.line((box.left, box.left, box.right), (box.top, box.bottom, box.bottom), width=0.7)
        drawing.text(box.left - 8, box.top + box.height / 2, title, turned=True)
        # a bar and a name next to the rows of each network; names only where there is room
        for number, (name, first, stop) in enumerate(networks if 1 < len(networks) <= MOST_NETWORKS else ()):
            bar = Box(box.right + 2, box.top + first * box.height, 5, (stop - first) * box.height)
            drawing.rectangle(bar, "#" + colour_table("tab20")[number % len(colour_table("tab20"))])
            if stop - first > ROOM_FOR_NAME:
                drawing.text(bar.right + 3, bar.top + bar.height / 2 + 0.36 * SMALL, name[:14], SMALL, "start")
    Axes(drawing, boxes[-1], time, Scale(0, 1)).frame_below(unit)
    return drawing.svg()


def draw_carpet(carpet: np.ndarray, rows: int, columns: int, limit: float) -> tuple[bytes, int]:
    """Return a carpet of at most so many rows and columns as PNG, black to white at ``limit``, and its columns."""
    palette = np.vstack([colours("gray", STEPS - 1), _rgb(CENSORED)])  # with the colour of no value two share a byte
    seen = shrink(carpet, rows, columns)
    return encode_png(step_of(seen, -limit, limit, STEPS - 1), palette), seen.shape[1]


def _shade_volumes(axes: Axes, volumes: Mapping[str, np.ndarray], scale: float) -> None:
    """Mark dummy volumes in hatched grey, censored ones in orange with a tick at the top."""
    dummy = volumes["dummy"] > 0
    censored = ~dummy & (volumes["kept"] == 0)
    drawing, box = axes.drawing, axes.box
    hatch = f'<path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" stroke="{DUMMY}" stroke-width="0.8"/>'
    if dummy.any():
        drawing.add("pattern", hatch, id="dummy", width=6, height=6, patternUnits="userSpaceOnUse")
    for wanted, fill, seen in ((dummy, "url(#dummy)", 1.0), (censored, CENSORED, 0.55)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted.astype(int), [0]])))
        for first, stop in zip(edges[::2], edges[1::2], strict=True):
            left, right = axes.across([(first - 0.5) * scale, (stop - 0.5) * scale])
            drawing.rectangle(Box(left, box.top, right - left, box.height), fill, fill_opacity=seen)
    places = axes.across(np.flatnonzero(censored) * scale)
    marks = "".join(f"M{place - 1.6:.1f} {box.top - 1.3:.1f}h3.2l-1.6 3z" for place in places)
    if marks:
        drawing.add("path", d=marks, fill="#000")


def _rgb(colour: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8)


def draw_matrices(matrices: Mapping[str, np.ndarray], networks: Sequence[tuple[str, int, int]]) -> str:
    """Draw matrices (P, P) by title, framed and named by network (name, first, stop); NaN is grey.

    Each has a colour scale up to the 99th percentile beside the diagonal.
    """
    columns = min(3, len(matrices))
    names = [name for name, *_ in networks] if len(networks) <= MOST_NETWORKS else []
    left = 6 + 0.56 * SMALL * max(map(len, names), default=0)
    side = min(230.0, (9.6 * POINTS - left) / columns - 14)
    drawing = Drawing((left + columns * (side + 14)) / POINTS, -(-len(matrices) // columns) * (side + 42) / POINTS)
    palette = np.vstack([colours("RdBu_r", 2 * STEPS + 1), _rgb("#9a9a9a")])
    for place, (title, matrix) in enumerate(matrices.items()):
        row, column = divmod(place, columns)
        box = Box(left + column * (side + 14), row * (side + 42) + 18, side, side)
        beside = np.abs(matrix[np.triu_indices(len(matrix), 1)])
        beside = beside[np.isfinite(beside)]
        most = (float(np.percentile(beside, 99)) if beside.size else 0.0) or 1.0
        small = shrink(matrix, LARGE, LARGE)
        drawing.image(box, encode_png(step_of(small, -most, most, 2 * STEPS + 1), palette), len(small))
        for name, first, stop in networks if names else ():
            start, size = side * first / len(matrix), side * (stop - first) / len(matrix)
            frame = Box(box.left + start, box.top + start, size, size)
            drawing.rectangle(frame, "none", stroke="#000", stroke_width=0.5)
            if column == 0 and size >= SMALL:
                drawing.text(box.left - 4, frame.top + size / 2 + 0.36 * SMALL, name, SMALL, "end")
        drawing.rectangle(box, "none", stroke="#000", stroke_width=0.5)
        drawing.text(box.left + side / 2, box.top - 5, title)
        drawing.text(
            box.left + side / 2, box.bottom + 12, f"blue \u2264 \u2212{most:.2g}, red \u2265 {most:.2g}", SMALL
        )
    return drawing.svg()


def shrink(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Average neighbouring rows, and neighbouring columns, until there are at most so many; NaN does not count."""
    for axis, most in ((0, rows), (1, columns)):
        size = image.shape[axis]
        if size > most:
            starts = np.round(np.linspace(0, size, most + 1)).astype(int)[:-1]  # bins of equal width, to one volume
            known = np.isfinite(image)
            count = np.add.reduceat(known, starts, axis=axis, dtype=int)
            total = np.add.reduceat(np.where(known, image, 0.0), starts, axis=axis)
            image = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return image


# Previews and the brain

THUMBNAIL_ROWS, THUMBNAIL_COLUMNS = 12, 48
"""Largest size in pixels: 0.4 kB."""
WHITE = 1.0
"""Standard deviations that are white; neighbours that are averaged vary less than each alone."""
ROWS, COLUMNS = 150, 900
"""Largest size of a carpet; neighbours are averaged down to it."""
CLIP, NO_VALUE = 3.0, 255
BRIGHTEST = 99.5
"""Percentile of the mean image that is white."""


class Preview(NamedTuple):
    """Carpet (rows, columns) in standard deviations, and mean power spectrum of a series of variance 1."""

    carpet: np.ndarray
    frequencies: np.ndarray
    power: np.ndarray


def write_previews(output_dir: Path, results: Results) -> None:
    """Keep what no table holds for the page: slices, and a preview of every atlas's series before cleaning."""
    for series, atlas in zip(results.series, results.atlases, strict=True):
        arrays: dict[str, Any] = {}
        if series.slices is not None:  # the volume in 255 steps from black to white, the rest as it is
            known = series.slices.volume[np.isfinite(series.slices.volume)]
            white = max(float(np.percentile(known, BRIGHTEST)), 1e-9) if known.size else 1.0
            volume = np.rint(np.clip(np.nan_to_num(series.slices.volume) / white, 0, 1) * 255).astype(np.uint8)
            arrays |= series.slices._replace(volume=volume)._asdict()
        kept = results.cleaning.kept
        if results.cleaning.excluded:  # too few are kept to draw; the reader wants to see why
            kept = np.arange(len(kept)) >= results.cleaning.n_dummy
        if len(series.raw) and kept.sum() > 2:
            whole = standardise_trend(series.raw, kept)
            preview = make_preview(whole, kept, results.cleaning.repetition_time, atlas.networks)
            scaled = np.rint((np.clip(preview.carpet, -CLIP, CLIP) + CLIP) / (2 * CLIP) * (NO_VALUE - 1))
            arrays["carpet"] = np.where(np.isfinite(scaled), np.nan_to_num(scaled), NO_VALUE).astype(np.uint8)
            arrays |= {"frequencies": preview.frequencies, "power": preview.power.astype(np.float32)}
            thumbnail = draw_carpet(preview.carpet, THUMBNAIL_ROWS, THUMBNAIL_COLUMNS, WHITE)[0]
            arrays["thumbnail"] = np.frombuffer(thumbnail, dtype=np.uint8)
        if arrays:
            path = preview_path(path_of(output_dir, results.recording.entities, atlas.entities, COVERAGE))
            with atomic(path) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **arrays)


def read_slices(path: Path) -> Slices | None:
    """Read the slices of a recording under an atlas; None where none were kept. Raises DatasetError."""
    if not (arrays := read_previews(path, Slices._fields)):
        return None
    slices = Slices(**arrays)
    if len({array.shape for array in slices[:4]}) > 1 or slices.volume.ndim != 3 or len(slices.z) != len(slices.volume):
        raise DatasetError(f"{path} holds no slices. Remove it; the page does without.")
    return slices


def read_preview(path: Path) -> Preview | None:
    """Read a preview; None where none was kept. Raises DatasetError."""
    if not (arrays := read_previews(path, Preview._fields)):
        return None
    carpet = arrays["carpet"].astype(np.float64) / (NO_VALUE - 1) * 2 * CLIP - CLIP
    carpet[arrays["carpet"] == NO_VALUE] = np.nan
    return Preview(carpet, arrays["frequencies"], arrays["power"].astype(np.float64))


def read_previews(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read what was kept for the page under these names; nothing where it was not. Raises DatasetError."""
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names if names[0] in file}
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


def draw_brain(slices: Slices, coverage: np.ndarray, threshold: float) -> str:
    """Draw two rows of slices: outlines on a volume, and coverage (P,)."""
    rows = {
        "outlines": outline(_grey(slices), slices),
        "coverage, 0 to 1": paint_coverage(_grey(slices), slices, coverage, threshold),
    }
    wide, n, top = 9.2 * POINTS, len(slices.volume), 0.0
    drawing = Drawing(9.6, 1)
    for title, pictures in rows.items():
        picture = np.concatenate(list(pictures), axis=1)  # side by side
        box = Box(0.035 * drawing.width, top, wide, wide / picture.shape[1] * picture.shape[0])
        drawing.image(box, encode_png(picture), picture.shape[1])
        drawing.text(box.left - 5, box.top + box.height / 2, title, 8, turned=True)
        for place, side in ((0.03, "L"), (n - 0.03, "R")):
            drawing.text(box.left + place / n * wide, box.bottom - 3, side, 8, fill="#fff", font_weight="bold")
        top = box.bottom
    for number, place in enumerate(slices.z):
        drawing.text(box.left + (number + 0.5) / n * wide, top + 10, f"z = {place:.0f}", 7.5)
    drawing.height = top + 14
    return drawing.svg()


def _grey(slices: Slices) -> np.ndarray:
    return np.repeat((slices.volume // (256 // STEPS) * (256 // STEPS))[..., None], 3, axis=-1).astype(np.uint8)


def outline(grey: np.ndarray, slices: Slices) -> np.ndarray:
    """Draw on slices (n, rows, columns, 3), at twice their resolution, the rims of white matter, atlas and mask."""
    shown, brain, parcels, template = (
        picture.repeat(2, axis=1).repeat(2, axis=2) for picture in (grey, slices.brain, slices.parcels, slices.template)
    )
    for within, colour in ((parcels > 0, ATLAS), (template == WHITE_MATTER, TEMPLATE)):
        rim = borders(within)
        shown[rim] = (0.3 * shown[rim] + 0.7 * np.array(colour)).astype(np.uint8)
    shown[borders(brain)] = MASK
    return shown


def borders(regions: np.ndarray) -> np.ndarray:
    """Return which pixels (n, rows, columns) of regions have a neighbour outside of them."""
    padded = np.pad(regions, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    inner = padded[:, :-2, 1:-1] & padded[:, 2:, 1:-1] & padded[:, 1:-1, :-2] & padded[:, 1:-1, 2:]
    return regions & ~inner


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
