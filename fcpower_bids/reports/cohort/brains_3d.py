"""The brains of a cohort's page as a page of their own, on which they can be turned."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.reports.cohort.brains import Brain, BrainPanel, brain_surface
from fcpower_bids.reports.cohort.tables import Section
from fcpower_bids.reports.kit.page import relative_link, render_page, write_page
from fcpower_bids.settings import Places


def write_brains(settings: Places, sections: Sequence[Section], command: str) -> Path | None:
    """Write ``brains.html``, or ``brains_NAME.html``; where nothing is drawn in a brain there is none."""
    shown = list(_shown(sections))
    if not shown:
        settings.brains_page.unlink(missing_ok=True)
        return None
    text = render_page(
        "brains.html",
        further_script="brains.js",
        command=command,
        title=f"Brains: {settings.name}" if settings.name else "Brains",
        dataset=settings.bids_dir.resolve().name,
        cohort_page=relative_link(settings.results_page, settings.output_dir),
        surface=_surface(),
        shown=shown,
    )
    return write_page(settings.brains_page, text)


def _shown(sections: Sequence[Section]) -> Iterator[tuple[str, BrainPanel, dict[str, Any]]]:
    for section in sections:
        for number, panel in enumerate(section.panels, 1):
            if isinstance(panel, BrainPanel) and panel.brain:
                yield f"{section.anchor}-{number}", panel, encode_brain(panel.brain)


def encode_brain(brain: Brain) -> dict[str, Any]:
    """Return what the script of the page draws; places to a tenth of a millimetre."""
    return {
        "parcels": brain.parcels,
        "places": [[round(float(one), 1) for one in place] for place in brain.places],
        "ends": brain.ends,
        "values": [float(f"{value:.6g}") for value in brain.values],
        "number": brain.column.heading,
    }


def _surface() -> dict[str, str]:
    """Corners of the surface in tenths of a millimetre, and its faces, sixteen bits each, in base64."""
    corners, faces = brain_surface()
    packed = {"corners": np.rint(10 * corners).astype("<i2"), "faces": faces.astype("<u2")}
    return {name: base64.b64encode(values.tobytes()).decode("ascii") for name, values in packed.items()}
