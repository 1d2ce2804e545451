from tests.analyses.conftest import cohort, predicted
from tests.reports.conftest import browser, written

__all__ = ["browser", "cohort", "predicted", "written"]
