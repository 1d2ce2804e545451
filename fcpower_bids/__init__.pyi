from fcpower_bids._version import __version__ as __version__
from fcpower_bids.estimators import (
    CorrelationKernelRidgeCV as CorrelationKernelRidgeCV,
)
from fcpower_bids.estimators import (
    FamilyFolds as FamilyFolds,
)
from fcpower_bids.estimators import (
    SpectralPower as SpectralPower,
)
from fcpower_bids.notebook import load_cohort as load_cohort
