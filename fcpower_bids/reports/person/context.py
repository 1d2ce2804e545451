"""Inputs of the panels of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.names import preview_path
from fcpower_bids.outputs.tables import read_series
from fcpower_bids.reports.kit.page import relative_link
from fcpower_bids.reports.person.previews import Preview, make_preview, read_preview
from fcpower_bids.reports.person.recording_facts import Account, View
from fcpower_bids.settings import ParticipantOutputs

MATRIX_ROOM = 3e6
"""Characters of all the matrices of a page whose cells can be read by pointing at them."""


@dataclass(frozen=True, eq=False)
class Context:
    """Inputs of a panel."""

    account: Account
    view: View
    settings: ParticipantOutputs
    room: float = MATRIX_ROOM

    @property
    def root(self) -> Path:
        """The output folder."""
        return self.settings.output_dir

    def links(self, *paths: Path | None) -> tuple[tuple[str, str], ...]:
        """Name and address of files."""
        return tuple((path.name, relative_link(path, self.root)) for path in paths if path is not None)

    @property
    def repetition_time(self) -> float:
        """Seconds; 0 where it is not known."""
        if "timeseries" in self.view.tables:
            return float(self.view.sidecar("timeseries")["RepetitionTime"])
        row = self.account.quality[0] if self.account.quality else {}
        return row["seconds_kept"] / row["kept_volumes"] if row.get("kept_volumes") else 0.0

    @cached_property
    def connectomes(self) -> list[np.ndarray]:
        """FC and its transforms, shape (P, P) each."""
        return [read_series(path)[0] for path in self.view.connectomes]

    @cached_property
    def previews(self) -> tuple[Preview | None, Preview | None, int]:
        """Facts about the series before and after cleaning, and the rows of the cleaned series."""
        before = read_preview(preview_path(self.view.tables["bold"])) if "bold" in self.view.tables else None
        if "timeseries" not in self.view.tables:
            return before, None, 0
        clean = read_series(self.view.tables["timeseries"])[0]
        volumes = self.account.volumes
        kept = np.ones(len(clean), dtype=bool) if volumes is None else volumes["kept"].to_numpy(dtype=bool)
        if kept.sum() != len(clean):
            raise DatasetError(
                f"{self.view.tables['timeseries']} has {len(clean)} rows, but {kept.sum()} volumes were kept. "
                "Run participant level again."
            )
        whole = np.full((len(kept), clean.shape[1]), np.nan)
        whole[kept] = clean
        networks = tuple(self.view.parcellation(self.root).networks)
        return before, make_preview(whole, kept, self.repetition_time, networks), len(clean)
