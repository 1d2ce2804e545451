"""The page of a pretraining run, from its log and from what the model was compared with."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.outputs.tables import read_declared, read_json
from fcpower_bids.pretrain.judgement import IN_WORDS, MODEL
from fcpower_bids.reports.cohort.tables import Section, count, make_grid
from fcpower_bids.reports.page import Panel, Verdict, relative_link, render_page
from fcpower_bids.reports.svg import draw_curves
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Settings
from fcpower_bids.store import write_text

SOUND = 0.3
"""Debiased alignment of FC^alpha of windows with the teacher below which something is wrong; 80 volumes give .9."""
FILES = ("log.tsv", "alignment.tsv", "alignment.json", "model/README.md")
TEXT = (
    "All are computed on the same {Views} windows of every held-out recording. The alignment is with the teacher (the "
    "kernel of FC^α of whole recordings); without the bias, what knows nothing scores 0."
)


def write_training_page(settings: Settings) -> Path:
    """Write ``pretrain.html`` from ``encoder/log.tsv`` and ``encoder/alignment.tsv``."""
    root, folder = settings.output_dir, settings.output_dir / "encoder"
    links = [(path.name, relative_link(path, root)) for path in map(folder.joinpath, FILES) if path.is_file()]
    facts, log = read_json(folder / "alignment.json"), read_declared(folder / "log.tsv", TABLES["log"])
    compared = read_declared(folder / "alignment.tsv", TABLES["alignment"])
    compared = compared.assign(map=[IN_WORDS[name] for name in compared["map"]])
    verdict, sections, cautions = str(facts["Verdict"]), [], []
    if len(compared):
        power = float(compared.set_index("map")["cka_debiased"][IN_WORDS["fc_power"]])
        if power < SOUND:
            cautions.append(
                f"FC^α of the windows themselves is hardly aligned with the teacher ({power:.2f}): the windows are too "
                "short for it, or not of its recordings."
            )
        columns = TABLES["alignment"].shown(*TABLES["alignment"].columns)
        best = compared.sort_values("cka_debiased", ascending=False, kind="stable")
        aligned = [f"{name} {value:.3f}" for name, value in zip(best["map"], best["cka_debiased"], strict=True)]
        sentence = f"Alignment with the teacher, without the bias: {', '.join(aligned)}."
        grid = make_grid(compared, columns, "On people kept out of training", TEXT.format(**facts), tuple(links[1:3]))
        sections.append(Section("comparison", "Learning", (sentence,), (), (grid,)))
    first, last = log.dropna(subset="loss").iloc[0], log.dropna(subset="loss").iloc[-1]
    sentence = f"The loss goes from {first['loss']:.3f} (step {first['step']:.0f}) to {last['loss']:.3f}."
    text = "Level lines need no training: the same windows of the same people."
    drawn = Panel("Loss and alignment over steps", text, _draw(log, compared), sentence, tuple(links[:2]), wide=True)
    text = render_page(
        "group.html",
        title="Pretraining of an encoder",
        dataset=settings.bids_dir.resolve().name,
        verdict=Verdict(
            "ok" if facts["Proven"] else "stop",
            re.sub(r" \(.*|(?<=\.) .*", "", verdict).rstrip(".") + ".",
            (
                ("Steps", f"{last['step']:.0f}; the model is of step {facts['Step']}"),
                (
                    "Judged on",
                    f"{count(facts['Families'], 'family', 'families')}, {count(facts['Recordings'], 'recording')}",
                ),
                ("Diagonal of the teacher kernel", f"{100 * facts['DiagonalShare']:.0f} % of its squared norm"),
            ),
            findings=[("On people kept out of training", (verdict,), "comparison" if len(compared) else "files")],
            cautions=cautions,
        ),
        sections=[*sections, Section("course", "The course of the training", (sentence,), (drawn,))],
        links=links,
    )
    return write_text(root / "pretrain.html", text)


def _draw(log: pd.DataFrame, compared: pd.DataFrame) -> str:
    """Loss and alignment over steps, with what needs no training as level lines."""

    def curve(column: str) -> np.ndarray:
        return log.reindex(columns=["step", column]).dropna().to_numpy(dtype=float)

    ends, others = [log["step"].min(), log["step"].max()], compared[compared["map"] != IN_WORDS[MODEL]]
    levels = {
        name: np.column_stack([ends, [score] * 2]).astype(float)
        for name, score in zip(others["map"], others["cka_debiased"], strict=True)
    }
    aligned = {"this model": curve("cka_debiased"), **levels}
    panels = [
        ("Loss", "loss of the batch", "step", {"loss": curve("loss")}),
        ("Held-out alignment", "debiased CKA with the teacher", "step", aligned),
        ("Probe of the external cohort", "out-of-fold r, mean over targets", "step", {"this model": curve("probe")}),
    ]
    return draw_curves([panel for panel in panels if any(len(points) for points in panel[-1].values())])
