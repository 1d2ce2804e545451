"""Where a run reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Places(Choices):
    """The folders of a run, and its level."""

    bids_dir: Path
    output_dir: Path
    level: str
    work_dir: Path | None = option(None, "resources", "folder for intermediate results [OUTPUT_DIR/work]", "-w")

    replace: bool = option(
        False, "group", "results of another question (targets, people, sites, folds) may be replaced"
    )
    name: str = option("", "group", "name of these results: group/NAME/ and group_NAME.html [group/ and group.html]")

    @property
    def results(self) -> Path:
        """Folder of the tables of the group level."""
        return self.output_dir / "group" / self.name

    @property
    def results_page(self) -> Path:
        """Page of the cohort."""
        return self.output_dir / (f"group_{self.name}.html" if self.name else "group.html")

    @property
    def brains_page(self) -> Path:
        """Brains of the cohort that can be turned."""
        return self.output_dir / (f"brains_{self.name}.html" if self.name else "brains.html")

    @property
    def record(self) -> Path:
        """File of the choices of the participant level: with the logs, for it holds absolute paths."""
        return self.output_dir / "logs" / "settings.toml"

    @property
    def results_record(self) -> Path:
        """File of the choices of the group level."""
        named = f"_{self.name}" if self.name else ""
        return self.output_dir / "logs" / f"settings_group{named}.toml"

    @property
    def index(self) -> Path:
        """Page of all recordings."""
        return self.output_dir / "index.html"

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.work_dir or self.output_dir / "work"
