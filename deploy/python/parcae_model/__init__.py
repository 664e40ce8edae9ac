"""Writes PyTorch models, and data sets, as folders that Parcae trains: see export() and export_dataset()."""

from .dataset import export_dataset
from .errors import CannotExport
from .export import export
from .layers import Pixels

__all__ = ["CannotExport", "Pixels", "export", "export_dataset"]
