"""Tables of ``group/`` with their sidecars, and ``group/analyses.json``: what is done, of which cohort."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fcpower_bids._version import __version__
from fcpower_bids.errors import DatasetError, FcPowerError, Incomplete, Unfit
from fcpower_bids.outputs.status import explain
from fcpower_bids.outputs.tables import plain, read_json, write_json, write_table
from fcpower_bids.parallel import say
from fcpower_bids.records import Cohort, Table
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import METHOD_SECTIONS, Settings
from fcpower_bids.store import digest_of, is_inner, stored_path

LEFT_OUT = TABLES["left_out"]


ENDINGS = (".tsv", ".tsv.gz")
MOST_PLAIN = 1_000_000
"""A table with more rows is compressed."""


def table_file(name: str, n_rows: int) -> str:
    """Return what the file of a table with so many rows is called."""
    return f"{name}{ENDINGS[n_rows > MOST_PLAIN]}"


def find_table(folder: Path, name: str) -> Path:
    """Return where a table is, compressed or not; where it would be if it is not there."""
    paths = [folder / f"{name}{ending}" for ending in ENDINGS]
    return next((path for path in paths if path.is_file()), paths[0])


def write_group_tables(folder: Path, tables: Mapping[str, Table], settings: Settings) -> None:
    """Write tables and sidecars, called as they are in ``tables``; one that was compressed, or was not, is replaced."""
    for name, table in tables.items():
        path = folder / table_file(name, table.n_rows)
        write_table(path, table.blocks(), table.spec)
        for ending in ENDINGS:
            if (other := folder / f"{name}{ending}") != path:
                other.unlink(missing_ok=True)
        about = {
            **table.spec.describe(table.columns),
            **table.facts,
            "Software": "fcpower_bids",
            "SoftwareVersion": __version__,
            "RandomSeed": settings.method.random_seed,
        }
        write_json(folder / f"{name}.json", about)


NAME = "analyses.json"
ROWS = 256
"""Connectomes that are digested at a time."""

THROUGH_THE_COHORT = frozenset(
    {
        *("name", "analyses", "save_models", "phenotypes", "missing_values", "exclude_file"),
        *("atlas_dir", "folds_file", "tangent_reference"),
    }
)
"""Choices that say which analyses run, or that change numbers through the cohort alone."""


class FinishedAnalyses:
    """The analyses whose tables are in a folder: all of one cohort and one set of choices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            content = read_json(folder / NAME)
        except DatasetError:  # not there, or damaged: every analysis runs again
            content = {}
        question, entries = content.get("question"), content.get("analyses")
        self.key = str(content.get("key", ""))
        self.question: dict[str, Any] = question if isinstance(question, dict) else {}
        self._entries: dict[str, Any] = {}
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            files = entry.get("files") if isinstance(entry, dict) else None
            if isinstance(files, dict) and all(map(is_inner, files)):
                self._entries[name] = entry

    @property
    def names(self) -> list[str]:
        """Analyses that are done."""
        return list(self._entries)

    @property
    def tables(self) -> set[str]:
        """The tables that they wrote."""
        return {file.partition(".")[0] for entry in self._entries.values() for file in entry["files"]}

    def has(self, name: str, besides: str = "") -> bool:
        """Whether an analysis was done, with what it alone reads besides, and its tables are what it wrote."""
        entry = self._entries.get(name, {})
        if not entry.get("files") or entry.get("besides") != besides:
            return False
        try:
            return all(digest_of(stored_path(self.folder, file)) == digest for file, digest in entry["files"].items())
        except OSError:
            return False

    def begin(self, key: str) -> list[str]:
        """Note the key of a run that begins; return the analyses of another key, whose tables are removed."""
        others = self.names if key != self.key else []
        for name in others:
            for file in self._entries.pop(name)["files"]:
                stored_path(self.folder, file).unlink(missing_ok=True)
        self.key, self.question = key, self.question if key == self.key else {}
        self._write()
        return others

    def add(
        self, name: str, tables: Mapping[str, Table], besides: str = "", question: Mapping[str, Any] | None = None
    ) -> None:
        """Note an analysis after its last table is on disk, and the question that it answers, if any."""
        files = (*(f"{table}.json" for table in tables), *(table_file(name, tables[name].n_rows) for name in tables))
        digests = {file: digest_of(self.folder / file) for file in sorted(files)}
        self._entries[name] = {"files": digests, "besides": besides}
        self.question = dict(question or self.question)
        self._write()

    def _write(self) -> None:
        content = {"key": self.key, "question": self.question, "analyses": self._entries}
        write_json(self.folder / NAME, content)


def analysis_key(cohorts: Mapping[str, Cohort], settings: Settings) -> str:
    """Key that differs whenever the people, their data, a choice that matters, the seed or the version differ."""
    sections = (*METHOD_SECTIONS, "group")
    chosen = {name: value for name, value in settings.of_sections(*sections).items() if value is not None}
    choices = {name: value for name, value in chosen.items() if name not in THROUGH_THE_COHORT}
    choices["random_seed"] = settings.method.random_seed
    content = [__version__, choices, {name: digest_cohort(cohort) for name, cohort in cohorts.items()}]
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def digest_cohort(cohort: Cohort) -> str:
    """Digest of everything that an analysis can see of a cohort; the series stand behind their connectomes."""
    digest = hashlib.blake2b(digest_size=16)
    facts: list[Any] = [cohort.parcels, cohort.networks, cohort.targets, cohort.notes, cohort.repetition_times]
    facts += [len(cohort.series), cohort.embedding_facts, cohort.alike, cohort.contents]
    digest.update(json.dumps(plain(facts)).encode())
    for frame in (cohort.scans, cohort.phenotypes, *([] if cohort.folds is None else [cohort.folds])):
        digest.update(frame.to_csv().encode())
    for session in cohort.scans["session"].unique():  # tables may state values of each
        try:
            text = cohort.phenotypes_of(np.flatnonzero(cohort.scans["session"] == session)).to_csv()
        except DatasetError as error:  # nothing is known of it
            text = str(error)
        digest.update(text.encode())
    for label, embedding in sorted(cohort.embeddings.items()):
        digest.update(label.encode() + np.ascontiguousarray(embedding, dtype=float).tobytes())
    if cohort.centroids is not None:
        digest.update(np.ascontiguousarray(cohort.centroids, dtype=float).tobytes())
    # Edges that are computed from series differ in the last bit between processors; what the files hold does not.
    for start in range(0, 0 if cohort.contents else len(cohort.edges), ROWS):
        digest.update(np.ascontiguousarray(cohort.edges[start : start + ROWS]).data)
    return digest.hexdigest()


PAGE, INDEX, CHECK = "page", "index", "check"
"""What counts only where it is asked for; the index of the recordings is never asked for."""
Result = TypeVar("Result")


class Attempts:
    """Run steps and note those that are done, left out (the data do not allow), refused or failed, with reasons."""

    def __init__(self, settings: Settings, asked: Collection[str] = ()) -> None:
        self.settings = settings
        self.done: list[str] = []
        self.left_out: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._causes: list[Exception] = []
        self._apart = {INDEX, PAGE, CHECK}.difference(asked)

    @contextmanager
    def at(
        self, name: str, may_leave_out: Callable[[Unfit], bool] = lambda error: False
    ) -> Generator[None, None, None]:
        """Do what stands within; what ends it is noted, and the next goes on."""
        try:
            yield
            self.finish(name)
        except Incomplete as error:
            self.fail(name, str(error), error)
            self.finish(name)
        except FcPowerError as error:
            may = isinstance(error, Unfit) and may_leave_out(error)
            (self.left_out if may else self.refused)[name] = str(error)
            say(f"{name}: left out. {error}", self.settings)
        except Exception as error:
            self.fail(name, explain(error, self.settings.output_dir, f"group_{name}"), error)

    def run(self, name: str, work: Callable[[], Result]) -> Result | None:
        """Do the work and return what it returns; None where it could not be done."""
        result = None
        with self.at(name):
            result = work()
        return result

    def finish(self, name: str) -> None:
        """Count what was asked for."""
        if name not in self._apart:
            self.done.append(name)

    def fail(self, name: str, sentence: str, error: Exception) -> None:
        """Note a failure that the caller has met."""
        self.failed[name] = sentence
        self._causes.append(error)
        say(f"{name}: failed. {sentence}", self.settings)

    def tell(self) -> None:
        """Raise one error for everything that was asked for and is not there. Raises Incomplete, DatasetError."""
        if self.failed:
            raise Incomplete(_lines(self.refused | self.failed), everything=not self.done) from self._causes[0]
        if self.refused:
            raise DatasetError(_lines(self.refused))


def _lines(reasons: dict[str, str]) -> str:
    return "\n".join(f"{name}: {reason}" for name, reason in reasons.items())
