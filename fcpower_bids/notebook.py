"""A cohort for scripts and notebooks: the data of the group level, as arrays that are made on access."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.features import build_representations, combine_scans, expand_names
from fcpower_bids.analyses.scan_parts import equalise_scans
from fcpower_bids.analyses.targets import join_families, labels_of
from fcpower_bids.cli.parser import settings_of
from fcpower_bids.cohort.assembly import load_cohort as assemble
from fcpower_bids.cohort.people import load_phenotypes
from fcpower_bids.cohort.phenotype_columns import name_columns
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import spectral_power
from fcpower_bids.elsewhere.imports import bring_sources
from fcpower_bids.errors import DatasetError, Unfit, UsageError
from fcpower_bids.inputs.roots import output_folders
from fcpower_bids.records import SITE, Cohort, site_in
from fcpower_bids.settings import Settings

PERSON, SCAN = "person", "scan"


class LoadedCohort:
    """People or scans with connectomes, in the order of the group level; everything has one row for each.

    ``names`` and, of scans, ``sessions``; ``parcels``, ``networks``, their ``centroids`` (P, 3) in mm or None, and the
    ``atlas``; ``scans``, ``excluded`` and ``notes`` as in ``group/``; ``phenotypes``, indexed by `names`; the
    ``choices`` of the group level, with the columns that are there in the place of a shipped set.
    """

    def __init__(self, cohort: Cohort, settings: Settings, per: str) -> None:
        self._cohort, self._settings, self.choices = cohort, settings, settings.group
        owners = cohort.scans["participant_id"].astype(str).to_numpy()
        self.names, self.sessions = tuple(owners.tolist()), tuple(cohort.scans["session"].astype(str))
        self._rows = [np.array([row]) for row in range(len(owners))]
        if per == PERSON:
            self.names, self.sessions = tuple(sorted(set(self.names))), ()
            self._rows = [np.flatnonzero(owners == name) for name in self.names]
        self.parcels, self.networks, self.centroids = cohort.parcels, cohort.networks, cohort.centroids
        self.atlas, self.scans, self.excluded, self.notes = cohort.atlas, cohort.scans, cohort.excluded, cohort.notes
        self.phenotypes = cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str)).reindex(list(self.names))
        if per == SCAN:  # the values of a person at each session
            parts = []
            for session, names in pd.Series(self.names).groupby(np.array(self.sessions)):
                values = load_phenotypes(settings, dict.fromkeys(names, (str(session),))).frame
                values = values.reindex(index=list(names), columns=self.phenotypes.columns)
                parts.append(values.set_axis(names.index))
            self.phenotypes = pd.concat(parts).sort_index().set_axis(self.phenotypes.index)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        what = "scans" if self.sessions else "people"
        columns = len(self.phenotypes.columns)
        return f"<{len(self)} {what}, {len(self.parcels)} parcels of {self.atlas}, {columns} phenotypes>"

    @cached_property
    def connectomes(self) -> FloatArray:
        """FC (n, P, P); of a person with several scans that of all of them, combined as the group level does."""
        connectivity = combine_scans(self._cohort, self._rows)
        return np.stack([connectivity.connectome(row) for row in range(len(self))])

    def power(self, alpha: float = ALPHA_STAR) -> FloatArray:
        """FC^alpha of every row (n, P, P), 0 < alpha <= 1. Raises ValueError."""
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1, and it is {alpha}.")
        return np.stack([spectral_power(connectome, alpha) for connectome in self.connectomes])

    def features(self, representation: str = "fc_power") -> NDArray[np.floating]:
        """Feature vectors (n, d) as the group level gives them to its regressions. Raises FcPowerError.

        A row without features (a scan that was not embedded) is NaN, with a warning.

        `representation` is as ``--representations`` has it: "fc", "fc_power" (edges times sqrt(2)), a transform, or
        "embedding:LABEL".
        """
        settings = self._settings.changed(representations=(representation,))
        name, *others = expand_names(self._cohort, settings)
        if others:
            raise UsageError(f"There are several: name one of {', '.join((name, *others))}.")
        rows = np.asarray(next(build_representations(self._cohort, self._rows, (name,), settings)).features()[:])
        if n := int((~np.isfinite(rows)).any(axis=1).sum()):
            warnings.warn(f"{n} of {len(rows)} rows have no {name}: they are NaN.", stacklevel=2)
        return rows

    def series(self, row: int) -> list[FloatArray]:
        """Return the cleaned series (T, P) of every run of one row."""
        return [run for scan in self._rows[row] for run in self._cohort.series[scan]()]

    def to_dataframe(self) -> pd.DataFrame:
        """Return the phenotypes of the rows beside sessions, minutes (their sum) and ``mean_fd`` (mm, their mean)."""
        scans = [self._cohort.scans.iloc[rows] for rows in self._rows]
        facts: dict[str, Any] = {"session": self.sessions} if self.sessions else {}
        facts["minutes"] = [float(part["seconds"].sum(skipna=False)) / 60 for part in scans]
        facts["mean_fd"] = [float(part["mean_fd"].mean()) for part in scans]
        table = pd.DataFrame(facts, index=pd.Index(self.names, name="participant_id"))
        others = self.phenotypes.drop(columns=[name for name in table if name in self.phenotypes])
        return pd.concat([table, others.set_axis(table.index)], axis=1)

    @cached_property
    def groups(self) -> NDArray[np.str_]:
        """Groups that stay together (n,): families, and people who seem to share a scan; else everyone is their own."""
        from fcpower_bids.check import check_cohort, people_alike  # only groups need it

        names = sorted(set(self.names))
        alike = list(people_alike(check_cohort(self._cohort, self._settings)["check_pairs"].frame))
        joined = join_families(self._labels(self._settings.group.family_column, "family", names), names, alike)
        of_person = dict(zip(names, names if joined is None else joined.tolist(), strict=True))
        return np.array([of_person[name] for name in self.names])

    @cached_property
    def sites(self) -> NDArray[np.str_] | None:
        """The site of every row (``site_column``), shape (n,); None without a column."""
        return self._labels(self._settings.group.site_column, "site", self.names)

    def _labels(self, column: str | None, kind: str, names: Sequence[str]) -> NDArray[np.str_] | None:
        """Labels of people; those without phenotypes have the site of their folder, or a label of their own."""
        table = self._cohort.phenotypes
        if (labels := labels_of(table, column, kind)) is None:
            return None
        known = dict(zip(table.index.astype(str), labels.tolist(), strict=True))
        instead = {name: site_in(name) if column == SITE else None for name in names}
        return np.array([known.get(name, instead[name] or name) for name in names])


def load_cohort(
    output_dir: str | Path, bids_dir: str | Path | None = None, *, per: str = PERSON, **choices: Any
) -> LoadedCohort:
    """Load what the participant level wrote, as the group level sees it. Raises UsageError, DatasetError.

    Parameters
    ----------
    output_dir : path
        The output folder of the participant level.
    bids_dir : path, optional
        The dataset with ``participants.tsv``; ``OUTPUT_DIR/sourcedata/raw`` by default. Without one there are no
        phenotypes but those of ``phenotypes=``.
    per : str
        "person" (all scans of a person as one row) or "scan".
    **choices
        Options of the group level by their names: ``atlas="Schaefer400"``, ``family_column``, ``site_column``,
        ``phenotypes``, ``exclude_file``, ``max_mean_fd``, ``session_label``, ``equal_minutes``, ...
    """
    if per not in (PERSON, SCAN):
        raise UsageError(f"per must be '{PERSON}' or '{SCAN}', not {per!r}.")
    if embedding := next((name for name in choices if name.startswith("encoder")), None):
        raise UsageError(f"{embedding} embeds at the group level; load_cohort reads what is stored: leave it out.")
    raw = Path(output_dir) / "sourcedata" / "raw"
    places = {"output_dir": Path(output_dir), "bids_dir": Path(bids_dir or raw), "level": "group"}
    settings = settings_of({"quiet": True, **choices, **places})
    if settings.group.site_column is None and len(output_folders(settings, settings.output_dir)) > 1:
        settings = settings.changed(site_column=SITE)
    settings = settings.changed(targets=name_columns(settings))
    bring_sources(settings)
    return LoadedCohort(open_cohort(settings), settings, per)


def open_cohort(settings: Settings) -> Cohort:
    """Load one cohort, its scans cut to equal minutes where that is asked for."""
    cohort = assemble(settings)
    try:
        return equalise_scans(cohort, settings) if settings.group.equal_minutes else cohort
    except Unfit as error:
        raise DatasetError(str(error)) from error
