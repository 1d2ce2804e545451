"""How a recording becomes connectomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.core.paper import ALPHA_STAR
from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Method(Choices):
    """Atlases, cleaning, and the connectomes that are made."""

    atlas: tuple[str, ...] = option(
        ("Schaefer400",),
        "method",
        "atlases: names, FILE[:TSV], BIDS-Atlas DATASET[:SELECTOR], A+B for merged parts",
        "--atlases",
    )
    atlas_dir: tuple[Path, ...] = option((), "method", "folders searched for atlases before TemplateFlow")
    strategy: str = option(
        "24P", "method", "confound strategy: a shipped name or a YAML file", "-p", "--nuisance-regressors"
    )
    high_pass: float = option(0.01, "method", "lower edge of the pass-band in Hz, 0 for none", "--lower-bpf")
    low_pass: float = option(0.08, "method", "upper edge of the pass-band in Hz, 0 for none", "--upper-bpf")
    filter_order: int | None = option(None, "method", "order of the Butterworth filter before its two passes [2]")
    padding: str | None = option(
        None, "method", "how a series goes on beyond its ends in the filter [even]", choices=("even", "constant", "odd")
    )
    convention: str = option(
        "fcpower", "method", "whose steps of cleaning are followed to rounding", choices=("fcpower", "nilearn", "xcp_d")
    )
    dummy_scans: str = option("auto", "method", "volumes to drop at the start: a number or 'auto' (non-steady state)")
    fd_thresh: float = option(0.5, "method", "censor volumes with more framewise displacement in mm, 0 for none", "-f")
    head_radius: str | None = option(
        None,
        "method",
        "radius of the head in mm for the displacement, or 'auto' (from the mask) [as the table has it]",
        "-r",
    )
    motion_filter_type: str | None = option(
        None, "method", "filter that takes breathing out of the motion parameters [none]", choices=("notch", "lp")
    )
    band_stop_min: float | None = option(None, "method", "its lower edge in breaths per minute (lp: the only one)")
    band_stop_max: float | None = option(None, "method", "its upper edge in breaths per minute")
    motion_filter_order: int = option(4, "method", "its order, over all passes")
    min_time: float = option(120.0, "method", "seconds that must be left after censoring, else excluded", question=True)
    min_coverage: float = option(0.5, "method", "share of a parcel's voxels that must have signal, else n/a")
    combine_runs: str = option(
        "none", "method", "runs of one session and task: also their combination", choices=("none", "concat", "average")
    )
    alpha: float = option(
        ALPHA_STAR,
        "method",
        "exponent of FC^alpha; at group level also 'grid', 'nested' or 'align'",
        or_choice="alpha_selection",
    )
    transforms: tuple[str, ...] = option(("power",), "method", "connectome transforms to write")
    compact: bool = option(
        False, "method", "store less than half: series in single precision as .npy, FC, and no transforms"
    )
    eigenvalue_floor: float | None = option(
        None, "method", "least eigenvalue for transforms that need full rank (mean: 1)"
    )
    shrink_to_identity: float | None = option(None, "method", "shrinkage towards the identity for the same, 0 to 1")

    def __post_init__(self) -> None:
        """Without room for them no transform is made: each follows from FC."""
        if self.compact:
            object.__setattr__(self, "transforms", ())

    @property
    def full_rank_remedy(self) -> dict[str, float | None]:
        """Least eigenvalue and shrinkage, by the names that transforms have for them."""
        return {"eigenvalue_floor": self.eigenvalue_floor, "shrink_to_identity": self.shrink_to_identity}

    @property
    def band(self) -> tuple[float | None, float | None]:
        """The pass-band in Hz; None on a side without a limit."""
        return self.high_pass or None, self.low_pass or None
