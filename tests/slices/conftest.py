from tests.reports.conftest import browser, written

__all__ = ["browser", "written"]
