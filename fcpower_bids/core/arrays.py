"""Types of arrays that signatures name."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Labels = NDArray[np.str_]
Rows = NDArray[np.intp]
"""Places of people, scans or volumes in an array."""
