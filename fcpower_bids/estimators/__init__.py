"""FC^alpha, kernel ridge regression and folds for families as scikit-learn estimators, for pipelines of one's own.

A score for each fold, families kept together, and a search over the exponent and the penalty::

    model = make_pipeline(SpectralPower(0.35), CorrelationKernelRidge(penalty=1.0))
    cross_val_score(model, connectomes, y, groups=family, cv=FamilyFolds(10))
    grid = {"spectralpower__alpha": [0.2, 0.35, 1.0], "correlationkernelridge__penalty": [0.1, 1.0, 10.0]}
    GridSearchCV(model, grid, cv=5).fit(connectomes, y)

`CorrelationKernelRidgeCV` selects the penalty by itself, as the group level does.
"""

from fcpower_bids.estimators.regression import CorrelationKernelRidge, CorrelationKernelRidgeCV, FamilyFolds
from fcpower_bids.estimators.transform import SpectralPower

__all__ = ["CorrelationKernelRidge", "CorrelationKernelRidgeCV", "FamilyFolds", "SpectralPower"]
