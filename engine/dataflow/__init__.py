"""The dataflow's face: tables, collections, outputs, steps."""

from engine.dataflow.collection import Collection, Output
from engine.dataflow.flow import Dataflow

__all__ = ["Collection", "Dataflow", "Output"]
