"""Writes PyTorch models as folders that Parcae trains: see export()."""

from .errors import CannotExport
from .export import export
from .layers import Pixels

__all__ = ["CannotExport", "Pixels", "export"]
