"""Arrays as small images: a table of colours, a lookup, a PNG."""

from __future__ import annotations

import json
import struct
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np

COLOURS = Path(__file__).parents[2] / "data" / "report" / "colours.json"
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
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, depth, kind, 0, 0, 0)),
            b"" if palette is None else _colours(palette.astype(np.uint8)),
            _chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _colours(palette: np.ndarray) -> bytes:
    """Return the chunks of a palette: its colours and, where it has them, its opacities."""
    opacities = _chunk(b"tRNS", palette[:, 3].tobytes()) if palette.shape[1] == 4 else b""
    return _chunk(b"PLTE", palette[:, :3].tobytes()) + opacities


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
