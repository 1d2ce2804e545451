"""The page of a pretraining run, from its log and from what the model was compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.outputs.tables import read_json
from fcpower_bids.pretrain.judgement import IN_WORDS, MODEL
from fcpower_bids.reports.charts import draw_curves
from fcpower_bids.reports.cohort.page import GroupVerdict
from fcpower_bids.reports.cohort.tables import Section, count, make_grid, percent, read_long
from fcpower_bids.reports.page import Panel, relative_link, render_page
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings, command_of
from fcpower_bids.store import write_text

SOUND = 0.3
"""Debiased alignment of FC^alpha of windows with the teacher below which something is wrong; 80 volumes give .9."""
FILES = ("log.tsv", "alignment.tsv", "alignment.json", "model/README.md")


def write_training_page(settings: Settings) -> Path:
    """Write ``pretrain.html`` from ``encoder/log.tsv`` and ``encoder/alignment.tsv``."""
    root = settings.output_dir
    paths = [root / "encoder" / name for name in FILES]
    links = {path.name: (path.name, relative_link(path, root)) for path in paths if path.is_file()}
    facts, log = read_json(root / "encoder" / "alignment.json"), read_long(root / "encoder" / "log.tsv", TABLES["log"])
    compared = read_long(root / "encoder" / "alignment.tsv", TABLES["alignment"])
    sentence = str(facts["Verdict"])
    verdict = GroupVerdict(
        "ok" if facts["Proven"] else "stop",
        re.sub(r" \(.*|(?<=\.) .*", "", sentence).rstrip(".") + ".",
        tuple(_facts(log, facts)),
        (("On people kept out of training", (sentence,), "comparison" if len(compared) else "files"),),
        (),
        tuple(_cautions(compared)),
    )
    text = render_page(
        "group.html",
        command=command_of(settings.as_dict()),
        title="Pretraining of an encoder",
        dataset=settings.bids_dir.resolve().name,
        verdict=verdict,
        sections=[*_comparison(compared, facts, links), _course(log, compared, links)],
        links=list(links.values()),
    )
    return write_text(root / "pretrain.html", text)


def _facts(log: pd.DataFrame, facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Steps", f"{log['step'].iloc[-1]:.0f}; the model is of step {facts['Step']}"
    yield ("Judged on", f"{count(facts['Families'], 'family', 'families')}, {count(facts['Recordings'], 'recording')}")
    yield "Diagonal of the teacher kernel", f"{100 * facts['DiagonalShare']:.0f} % of its squared norm"
    timed = log.dropna(subset="steps_per_s")
    if len(timed):
        last = timed.iloc[-1]
        yield "Speed", f"{timed['steps_per_s'].median():.2f} steps/s"
        yield "Memory", f"{last['peak_mb']:.0f} MB"
        if last["seconds_left"] > 0:
            yield "Time left", f"{last['seconds_left'] / 60:.0f} min"


def _cautions(compared: pd.DataFrame) -> Iterator[str]:
    rows: dict[str, dict[str, float]] = {str(row.pop("map")): row for row in compared.to_dict("records")}  # type: ignore[misc]
    if "model" not in rows:
        return
    model, power = rows["model"], rows["fc_power"]["cka_debiased"]
    shares = {name: rows[name]["identification"] for name in ("fc", "fc_power")}
    better = [f"{IN_WORDS[name]} {percent(share)}" for name, share in shares.items() if share > model["identification"]]
    if better:
        yield (
            f"Methods without training identify unseen people better from the same windows: {', '.join(better)}; this "
            f"model {percent(model['identification'])}."
        )
    if power < SOUND:
        yield (
            f"FC^α of the windows themselves is hardly aligned with the teacher ({power:.2f}): the windows are too "
            "short for it, or not of its recordings."
        )


def _comparison(compared: pd.DataFrame, facts: dict[str, Any], links: dict[str, tuple[str, str]]) -> Iterator[Section]:
    if compared.empty:
        return
    text = (
        f"All are computed on the same {facts['Views']} windows of every held-out recording. The alignment is with "
        "the teacher (the kernel of FC^α of whole recordings); without the bias, what knows nothing scores 0. "
        "Identification: each person's first window looks for their last one among all held-out people, and the "
        "other way round."
    )
    titled = compared.assign(map=[IN_WORDS.get(name, name) for name in compared["map"]])
    shown = TABLES["alignment"].shown(*TABLES["alignment"].columns)
    sources = tuple(links[name] for name in FILES[1:3] if name in links)
    grid = make_grid(titled, shown, "On people kept out of training", text, sources)
    best = titled.sort_values("cka_debiased", ascending=False, kind="stable")
    aligned = [f"{name} {value:.3f}" for name, value in zip(best["map"], best["cka_debiased"], strict=True)]
    sentence = f"Alignment with the teacher, without the bias: {', '.join(aligned)}."
    yield Section("comparison", "Learning", (sentence,), (), (grid,))


def _course(log: pd.DataFrame, compared: pd.DataFrame, links: dict[str, tuple[str, str]]) -> Section:
    """Loss and alignment over steps, with what needs no training as level lines."""
    ends = np.array([log["step"].min(), log["step"].max()], dtype=float)
    others = compared[compared["map"] != MODEL]
    scores = zip(others["map"], others["cka_debiased"], strict=True)
    levels = {IN_WORDS[str(name)]: np.column_stack([ends, [score] * 2]) for name, score in scores}

    def curve(column: str) -> np.ndarray:
        known = log.dropna(subset=column) if column in log else log.iloc[:0].assign(**{column: np.nan})
        return known[["step", column]].to_numpy(dtype=float)

    panels = [
        ("Loss", "loss of the batch", "step", {"loss": curve("loss")}),
        (
            "Held-out alignment",
            "debiased CKA with the teacher",
            "step",
            {"this model": curve("cka_debiased"), **levels},
        ),
        ("Held-out alignment, biased", "CKA with the teacher", "step", {"this model": curve("cka")}),
        ("Probe of the external cohort", "out-of-fold r, mean over targets", "step", {"this model": curve("probe")}),
    ]
    panels = [panel for panel in panels if any(len(points) for points in panel[-1].values())]
    first, last = log.dropna(subset="loss").iloc[0], log.dropna(subset="loss").iloc[-1]
    sentence = f"The loss goes from {first['loss']:.3f} (step {first['step']:.0f}) to {last['loss']:.3f}."
    panel = Panel(
        "Loss and alignment over steps",
        "Level lines need no training: the same windows of the same people.",
        draw_curves(panels),
        sentence,
        sources=tuple(links[name] for name in FILES[:2] if name in links),
        wide=True,
    )
    return Section("course", "The course of the training", (sentence,), (panel,))
