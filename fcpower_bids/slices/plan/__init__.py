"""Questions fixed beforehand, and a journal of every result of an output folder, deleted ones included."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"plan": "fcpower_bids.slices.plan.options:PlanChoices"},
    checks={"plan": "fcpower_bids.slices.plan.options:check_plan"},
    before_analyses={"plan": "fcpower_bids.slices.plan.journal:note_plan"},
    after_analyses={"plan": "fcpower_bids.slices.plan.journal:note_results"},
    sections={"plan": "fcpower_bids.slices.plan.page:PART"},
)
