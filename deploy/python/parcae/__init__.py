"""Parcae from Python: submit jobs to a cluster, follow them through preemptions, load what they trained.

Talks to `parcae web`; needs nothing but Python's standard library. (`train` exports, so it needs PyTorch.)
"""

from .client import Cluster, Error, Job, Point, Record, connect
from .train import train

__all__ = ["Cluster", "Error", "Job", "Point", "Record", "connect", "train"]
