"""The first lines of a page: whether the scans can be used, and what a reader must know before using them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fcpower_bids.cohort.inclusion import find_cautions
from fcpower_bids.outputs.names import short_name
from fcpower_bids.outputs.status import DONE, EXCLUDED, FAILED, RUNNING, SKIPPED, Status
from fcpower_bids.reports.person.recording_facts import Account

STAGES = {
    "find": "looking for the inputs",
    "inputs": "looking at the inputs",
    "atlas": "loading the atlas",
    "parcellate": "averaging the voxels of each parcel",
    "bandpass": "cleaning the series",
    "connectivity": "computing the connectome",
    "power": "computing FC^alpha",
    "connectomes": "gathering the connectomes",
    "measure": "computing the quality tables",
    "embed": "embedding",
    "sink": "writing the results",
}
WORDS = {DONE: "used", EXCLUDED: "excluded", FAILED: "failed", SKIPPED: "skipped", RUNNING: "not finished"}
USED_WITH_CAUTION = "used with caution"
OTHER_CHOICES = "Its results are older than the present settings; see its provenance below, or run it again."


@dataclass(frozen=True)
class Problem:
    """Something a reader must know: of which recording, how grave (``stop``, ``caution``), what in plain words."""

    recording: str
    level: str
    state: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """First lines of a page."""

    level: str  # ``ok``, ``caution`` or ``stop``
    headline: str  # one sentence
    facts: tuple[tuple[str, str], ...]  # label and value
    problems: tuple[Problem, ...]  # every recording that is not used, and every caution


def judge(accounts: Sequence[Account], embeddings: Sequence[Status], configuration: str) -> Verdict:
    """Sum up the status of the recordings of a participant; ``configuration`` is the hash of the present choices."""
    used = [account for account in accounts if account.status.state == DONE]
    wanted = [account for account in accounts if account.status.state != SKIPPED]
    problems = [problem for account in accounts for problem in _problems(account)]
    problems += [
        Problem(account.name, "caution", "made with other choices", OTHER_CHOICES)
        for account in accounts
        if account.configuration not in ("", configuration)
    ]
    problems += [Problem(one.recording, "caution", f"embedding {WORDS[one.state]}", one.reason) for one in embeddings]
    level = "stop" if not used else "caution" if problems else "ok"
    names = {account.name for account in used}
    doubted = any(problem.level == "caution" and problem.recording in names for problem in problems)
    return Verdict(level, _headline(len(used), len(wanted), doubted), tuple(_facts(accounts, used)), tuple(problems))


def _headline(used: int, wanted: int, doubted: bool) -> str:
    if not wanted:
        return "There is no recording."
    if used == wanted:
        every = {1: "The recording", 2: "Both recordings"}.get(used, f"All {used} recordings")
        return f"{every} can be used{', with caution' if doubted else ''}."
    if not used:
        none = {1: "The recording cannot", 2: "Neither of the 2 recordings can"}
        return none.get(wanted, f"None of the {wanted} recordings can") + " be used."
    return f"{used} of {wanted} recordings can be used."


def _facts(runs: Sequence[Account], used: Sequence[Account]) -> list[tuple[str, str]]:
    states = [account.status.state for account in runs]
    counts = [f"{states.count(state)} {word}" for state, word in WORDS.items() if state in (DONE, EXCLUDED, FAILED)]
    counts += [f"{states.count(state)} {WORDS[state]}" for state in (SKIPPED, RUNNING) if state in states]
    facts = [("Recordings", ", ".join(counts))]
    if used:
        kept = sum(minutes_kept(account)[0] for account in used)
        whole = sum(minutes_kept(account)[1] for account in runs)
        facts.append(("Minutes kept", f"{kept:.1f} of {whole:.1f}"))
        facts.append(("Parcels without a value", _uncovered(used)))
        fd = [account.quality[0]["mean_fd"] for account in runs if account.quality]
        known = [value for value in fd if value == value]
        facts.append(("Mean FD", _range(known)))
    return facts


def _range(known: list[float]) -> str:
    if not known:
        return "unknown"
    low, high = f"{min(known):.2f}", f"{max(known):.2f}"
    return f"{low} mm" if low == high else f"{low} to {high} mm"


def minutes_kept(account: Account) -> tuple[float, float]:
    """Return the minutes of the cleaned series and those of the file."""
    if not account.quality:
        return 0.0, 0.0
    row = account.quality[0]
    seconds = row["seconds_kept"] / max(row["kept_volumes"], 1)
    return row["seconds_kept"] / 60, row["volumes"] * seconds / 60


def _uncovered(used: Sequence[Account]) -> str:
    worst: dict[str, tuple[int, int]] = {}
    for account in used:
        for row in account.quality:
            count = len(account.uncovered.get(row["atlas"], []))
            if count >= worst.get(row["atlas"], (0, 0))[0]:
                worst[row["atlas"]] = (count, int(row["parcels"]))
    if not any(count for count, _ in worst.values()):
        return "none"
    return "; ".join(
        f"up to {count} of {parcels} ({short_name(atlas)})" for atlas, (count, parcels) in worst.items() if count
    )


def _problems(account: Account) -> list[Problem]:
    status = account.status
    if status.state != DONE:
        at_work = status.state in (FAILED, RUNNING) and status.stage
        where = f" while {STAGES.get(status.stage, status.stage)}" if at_work else ""
        reason = status.reason or "It was not finished. Run the same command again."
        return [Problem(account.name, "stop", WORDS[status.state] + where, reason)]
    return [Problem(account.name, "caution", USED_WITH_CAUTION, reason) for reason in cautions_of(account)]


def word_of(account: Account) -> str:
    """Return the verdict on a recording in words."""
    doubted = account.status.state == DONE and cautions_of(account)
    return USED_WITH_CAUTION if doubted else WORDS[account.status.state]


def cautions_of(account: Account) -> list[str]:
    """Return what a reader must know before using a recording that is done."""
    quality = account.quality[0] if account.quality else {}
    return find_cautions(account.uncovered, quality, account.notes) + account.broken
