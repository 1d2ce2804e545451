"""What is predicted: columns of the phenotype tables and composites of them, continuous or of two classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.people import column_of
from fcpower_bids.core.regression.folds import Rows
from fcpower_bids.core.regression.targets import (
    TargetBuilder,
    composite_target,
    encode_binary,
    fixed_target,
    join_targets,
    residual_target,
)
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.settings import GroupLevel

FloatArray = NDArray[np.float64]

REMEMBERED = 2**24
"""Numbers of targets that are kept, over all folds in which they are built: 134 MB."""


@dataclass(frozen=True, eq=False)
class Target:
    """One thing to predict.

    Attributes
    ----------
    name : str
        Column, or name of the composite.
    measures : ndarray, shape (n, q)
        The column (q = 1), or those of the composite; NaN where missing.
    positive : str or None
        The class that is coded as 1, for a target of two classes.
    """

    name: str
    measures: FloatArray
    positive: str | None = None

    @property
    def is_binary(self) -> bool:
        """Whether the target is one of two classes."""
        return self.positive is not None

    @property
    def known(self) -> NDArray[np.bool_]:
        """Who has the target, shape (n,)."""
        return np.asarray(~np.isnan(self.measures).all(axis=1))

    def build(self, order: Rows | None = None) -> TargetBuilder:
        """Return the target as built in a fold, for people in their own or in a permuted order."""
        measures = self.measures if order is None else self.measures[order]
        return composite_target(measures) if measures.shape[1] > 1 else fixed_target(measures)


def choose_targets(
    table: pd.DataFrame, settings: GroupLevel, defaults: Sequence[str] | None = None, covariates: Sequence[str] = ()
) -> list[Target]:
    """Read the targets that are asked for, else all numeric columns that vary, and every composite.

    Parameters
    ----------
    table : pandas.DataFrame
        Phenotypes of the people who take part.
    settings : GroupLevel
        ``targets``, ``composite``, and the columns that are not targets by default: family, site.
    defaults : sequence of str, optional
        Columns to take where none are named; all numeric ones without it. Not used when composites are named.
    covariates : sequence of str
        Not targets by default either.

    Raises
    ------
    NotInCohort
        There is no target.
    Unfit
        A column is unknown, constant, all missing, or neither numeric nor of two classes.
    """
    composites = [_read_composite(table, text) for text in settings.composite]
    names = list(settings.targets)
    if not names and not composites:
        spoken_for = {*covariates, *settings.harmonise_keep, settings.family_column, settings.site_column}
        numeric = [str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
        candidates = numeric if defaults is None else defaults
        names = [name for name in candidates if name not in spoken_for and table[name].nunique() > 1]
    targets = [_read_target(table, name) for name in dict.fromkeys(names)]
    if not targets and not composites:
        raise NotInCohort("There is no phenotype to predict; name columns with --targets.")
    return targets + composites


def join_target_builders(
    targets: Sequence[Target], covariates: FloatArray, orders: Sequence[Rows | None] = (None,)
) -> FloatArray | TargetBuilder:
    """Put targets side by side for `core.nested.nested_cv`, without what the covariates explain.

    Parameters
    ----------
    targets : sequence of m Target
    covariates : ndarray, shape (n, c)
        Regressed on the training rows; permuted together with the targets, to keep their relation.
    orders : sequence of B (ndarray of int or None)
        Permutations of the people; each gives one column per target.

    Returns
    -------
    ndarray, shape (n, B m), where nothing depends on the fold; otherwise a TargetBuilder.
    """
    if not covariates.shape[1] and all(target.measures.shape[1] == 1 for target in targets):
        blocks = [
            target.measures if order is None else target.measures[order] for order in orders for target in targets
        ]
        return np.hstack(blocks)
    if not covariates.shape[1]:
        return join_targets([target.build(order) for order in orders for target in targets])
    residuals = [
        residual_target(
            join_targets([target.build(order) for target in targets]),
            covariates if order is None else covariates[order],
        )
        for order in orders
    ]
    return join_targets(residuals)


def build_once(targets: FloatArray | TargetBuilder) -> FloatArray | TargetBuilder:
    """Let targets be built once per training set however many regressions are fitted to them, up to `REMEMBERED`."""
    if not callable(targets):
        return targets
    build = targets
    known: dict[bytes, FloatArray] = {}

    def remember(train: Rows) -> FloatArray:
        key = train.tobytes()
        if key in known:
            return known[key]
        built = build(train)
        if (len(known) + 1) * built.size <= REMEMBERED:
            known[key] = built
        return built

    return remember


def _read_target(table: pd.DataFrame, name: str) -> Target:
    column = column_of(table, name)
    known = column.dropna()
    if not len(known):
        raise Unfit(f"The target '{name}' is missing for everyone who takes part.")
    classes = sorted(known.unique().tolist())
    if len(classes) == 1:
        raise Unfit(f"The target '{name}' is constant ({classes[0]}): there is nothing to predict.")
    if len(classes) == 2:
        encoded = encode_binary(column.astype(object).where(column.notna(), None).to_numpy())
        return Target(name, encoded[:, None], str(classes[1]))
    if not pd.api.types.is_numeric_dtype(column):
        raise Unfit(f"The target '{name}' has {len(classes)} classes; only numbers or two classes can be predicted.")
    return Target(name, _finite(column, name)[:, None])


def _read_composite(table: pd.DataFrame, text: str) -> Target:
    name, _, listed = text.partition("=")
    columns = [column.strip() for column in listed.split(",") if column.strip()]
    if len(columns) < 2:
        raise Unfit(f"The composite '{text}' needs two columns or more, as in NAME=COLUMN,COLUMN.")
    measures = []
    for column in columns:
        values = column_of(table, column)
        if not pd.api.types.is_numeric_dtype(values) or values.nunique() < 2:
            raise Unfit(f"The column '{column}' of the composite '{name}' is not numeric, or does not vary.")
        measures.append(_finite(values, column))
    return Target(name.strip(), np.column_stack(measures))


def _finite(column: pd.Series, name: str) -> FloatArray:
    values = column.to_numpy(dtype=float, na_value=np.nan)
    if np.isinf(values).any():
        raise Unfit(f"The column '{name}' has infinite values; correct them or mark them as missing (n/a).")
    return values
