"""Fast prediction with kernel machines: the same answers as your trained SVM, with a promise you can read."""

from svelto import datasets
from svelto.accelerate import accelerate
from svelto.distance_bounds import register_bound
from svelto.estimator import Accelerated
from svelto.io.saved import load
from svelto.machine import KernelMachine
from svelto.patching import patch_sklearn, patched, unpatch_sklearn
from svelto.path_tree import PathTree, path_tree
from svelto.predictor import Predictor
from svelto.report import Report
from svelto.training.exponential import ExponentialSVC
from svelto.training.knn_svc import KNNSVC
from svelto.training.local import LocalSVC
from svelto.training.svm_tree import SVMTreeClassifier

__version__ = "0.1.0"

__all__ = [
    "KNNSVC",
    "Accelerated",
    "ExponentialSVC",
    "KernelMachine",
    "LocalSVC",
    "PathTree",
    "Predictor",
    "Report",
    "SVMTreeClassifier",
    "__version__",
    "accelerate",
    "datasets",
    "load",
    "patch_sklearn",
    "patched",
    "path_tree",
    "register_bound",
    "unpatch_sklearn",
]
