"""The dataflow's face: tables, collections, outputs, steps."""

from engine.dataflow.collection import Collection
from engine.dataflow.delta_join import delta_join
from engine.dataflow.flat_map import flat_map
from engine.dataflow.flow import Dataflow
from engine.dataflow.iterate import Iteration
from engine.dataflow.nodes import OVERFLOWED
from engine.dataflow.output import Output
from engine.dataflow.reading import Reading
from engine.operators.top import Order

__all__ = [
    "OVERFLOWED",
    "Collection",
    "Dataflow",
    "Iteration",
    "Order",
    "Output",
    "Reading",
    "delta_join",
    "flat_map",
]
