"""A small BIDS dataset whose truth is known; start reading at :func:`fcpower_bids.demo.dataset.make_dataset`."""

from fcpower_bids.demo.dataset import DemoTruth, make_dataset
from fcpower_bids.demo.signals import DemoDesign

__all__ = ["DemoDesign", "DemoTruth", "make_dataset"]
