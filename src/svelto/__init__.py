"""Fast prediction with kernel machines: the same answers as your trained SVM, with a promise you can read."""

from svelto import datasets
from svelto.accelerate import accelerate
from svelto.machine import KernelMachine
from svelto.predictor import Predictor
from svelto.report import Report

__version__ = "0.1.0"

__all__ = ["KernelMachine", "Predictor", "Report", "__version__", "accelerate", "datasets"]
