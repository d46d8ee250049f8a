"""The dataflow's face: tables, collections, outputs, steps."""

from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.dataflow import Dataflow
from headrace.engine.dataflow.delta_join import delta_join
from headrace.engine.dataflow.flat_map import flat_map
from headrace.engine.dataflow.iterate import Iteration
from headrace.engine.dataflow.output import Output
from headrace.engine.dataflow.overflow import OVERFLOWED
from headrace.engine.dataflow.subscription import Reading
from headrace.engine.operators.top import Order

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
