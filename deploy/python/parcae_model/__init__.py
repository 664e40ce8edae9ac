"""Writes PyTorch models, and data sets, as folders that Parcae trains: see export() and export_dataset()."""

import sys

if sys.version_info < (3, 10):
    raise ImportError("parcae_model needs Python 3.10 or newer, as PyTorch 2.11.0 does; this is "
                      f"{sys.version_info[0]}.{sys.version_info[1]}")

from .dataset import export_dataset
from .errors import CannotExport
from .export import export
from .layers import Pixels

__all__ = ["CannotExport", "Pixels", "export", "export_dataset"]
