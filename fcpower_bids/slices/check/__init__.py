"""The check of a cohort before the first model: whatever makes right formulas mislead."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"check": "fcpower_bids.slices.check.options:CheckChoices"},
    before_analyses={"check": "fcpower_bids.slices.check.workflow:check_first"},
    alike={"check": "fcpower_bids.slices.check.check:find_alike"},
    cohort_tables={
        "check": "fcpower_bids.slices.check.findings:CHECK",
        "check_pairs": "fcpower_bids.slices.check.pairs:CHECK_PAIRS",
        "check_combined": "fcpower_bids.slices.check.findings:CHECK_COMBINED",
    },
    sections={"check": "fcpower_bids.slices.check.page:PART"},
)
