"""A small BIDS dataset with fMRIPrep-style derivatives whose truth is known, for the tutorial and the end-to-end tests.

Start reading at :func:`fcpower_bids.demo.dataset.make_dataset`; ``python -m fcpower_bids.demo OUTPUT_DIR`` calls it.
"""

from fcpower_bids.demo.dataset import DemoTruth, make_dataset
from fcpower_bids.demo.design import DemoDesign

__all__ = ["DemoDesign", "DemoTruth", "make_dataset"]
