"""Group analyses: arrays and tables in, long tables out.

No file of a dataset is read or written.

An analysis is a function ``(cohort, settings)`` that yields twice: nothing, where its first look ends, and
``{name of the table: Table}``; ``data/tables.tsv`` declares them. It raises `errors.Unfit` with one plain sentence
where the cohort cannot answer the question: in the first look, before anything is computed, wherever that can be known
then. A new one is one file, a name here, and its line in `catalogue`.
"""

from fcpower_bids.settings import Settings

NAMES = (
    *("prediction", "fingerprinting", "alpha_selection", "qc_fc", "edges", "transform_screen", "spectral_controls"),
    *("spectrum_geometry", "learning_curves", "encoder_comparison", "parcellation_sweep"),
)
"""The names alone, for ``--help``, which loads no numpy."""
OF_COHORTS = frozenset({"parcellation_sweep"})
"""Analyses that take a mapping of atlas to cohort instead of one cohort."""
ALL, CHECK = "all", "check"
"""In ``--analyses``: every analysis, or none, for the look at what would mislead, which every run begins with."""
DEFAULT = ("prediction", "fingerprinting", "qc_fc")
"""Analyses that run where none is named, as far as the cohort has what they need."""


def analyses_to_run(settings: Settings) -> tuple[str, ...]:
    """Names of the analyses asked for (none: `DEFAULT`; ``all``: every one), and of the exponent's choice."""
    asked = tuple(name for name in settings.group.analyses or DEFAULT if name != CHECK)
    if not asked:
        return ()
    chosen = tuple(dict.fromkeys(analysis for name in asked for analysis in (NAMES if name == ALL else (name,))))
    rule = settings.group.alpha_selection
    needed = rule in ("grid", "align") or (rule == "nested" and "prediction" not in chosen)
    return tuple(dict.fromkeys((*chosen, "alpha_selection"))) if needed else chosen
