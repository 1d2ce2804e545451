"""Connectomes that are equal to the bit: of one person twice, or of two people, one of whose names is wrong."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fcpower_bids.cohort.cache import edges_beside
from fcpower_bids.cohort.features import Connectome
from fcpower_bids.cohort.inclusion import RECORDING, Exclusion
from fcpower_bids.core.inference.duplicate_scans import COPIED, NEITHER

END = 4096
"""Bytes at the end of a file that are compared first among files of its size."""


def find_copies_elsewhere(found: Sequence[Connectome], others: Iterable[Connectome]) -> dict[str, Connectome]:
    """By recording, the identical connectome file of a person outside the request."""
    kinds = {(one.atlas_name, one.space) for one in found}
    by_size: dict[int, list[Connectome]] = {}
    for other in others:
        if (other.atlas_name, other.space) in kinds:
            by_size.setdefault(_file(other).stat().st_size, []).append(other)
    copies = {}
    for one in found:
        own = _file(one)
        for other in by_size.get(own.stat().st_size, ()):
            if _end(own) == _end(_file(other)) and _digest(own) == _digest(_file(other)):
                copies[one.recording] = other
    return copies


def _file(one: Connectome) -> Path:
    array = edges_beside(one.path)
    return array if array.is_file() else one.path


def _end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(END, path.stat().st_size), os.SEEK_END)
        return file.read()


def _digest(path: Path) -> bytes:
    return hashlib.blake2b(path.read_bytes()).digest()


def exclude_duplicates(
    found: Sequence[Connectome],
    digests: Sequence[str],
    accepted: Collection[str] = (),
    elsewhere: Mapping[str, Connectome] = MappingProxyType({}),
) -> tuple[list[bool], list[Exclusion]]:
    """Leave out connectomes that are equal to the bit, as two recordings never are.

    Of one person the first is kept. Of several people none is, since one of the names is wrong and nothing says which;
    where the user has accepted one recording, that one is kept.
    """
    alike: dict[str, list[Connectome]] = {}
    for one, digest in zip(found, digests, strict=True):
        alike.setdefault(digest, []).extend([one, elsewhere[one.recording]] if one.recording in elsewhere else [one])
    kept = {id(_kept(copies, accepted)) for copies in alike.values()}
    rows = []
    for one, digest in zip(found, digests, strict=True):
        if id(one) not in kept:
            reason = _why_copied(one, alike[digest], _kept(alike[digest], accepted))
            rows.append(Exclusion(one.participant, one.session, RECORDING, f"{one.recording}: {reason}"))
    return [id(one) in kept for one in found], rows


def _kept(copies: Sequence[Connectome], accepted: Collection[str]) -> Connectome | None:
    named = [one for one in copies if one.recording in accepted]
    if len({one.participant for one in copies}) == 1:
        return (named or copies)[0]
    return named[0] if len(named) == 1 else None


def _why_copied(one: Connectome, copies: Sequence[Connectome], kept: Connectome | None) -> str:
    if kept is not None:
        return f"{COPIED} {kept.recording}; only that is used"
    other = next(each for each in copies if each.participant != one.participant)
    return (
        f"{COPIED} {other.recording}, so one of the two names is wrong and {NEITHER}; reject the wrong one, or accept "
        "the right one, in exclude.tsv"
    )
