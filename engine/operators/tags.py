"""The tags of expressions, types and operators' arguments: what they are called in fingerprints.

Invariant: a tag never changes and is never given to another class, or every state folder of before is thrown away and
every sink filled anew. Classes and fields may be renamed freely. Names of functions and operators (`Call.function`,
`Aggregate.function`, `WindowFunction.name`, `SetFunction.function`) are fingerprinted as the function catalogue spells
them: these names are as fixed as tags. Called by the dataflow and by `headrace.views.plan_node`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Case, Cast, Coalesce, ColumnRef, Literal
from headrace.engine.operators.table_functions import SetFunction
from headrace.engine.operators.top import Order
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.schema import Column, DataType, Schema

TAGS: Mapping[type, str] = {
    DataType: "type",
    Column: "column",
    Schema: "schema",
    ColumnRef: "ref",
    Literal: "literal",
    Call: "call",
    Cast: "cast",
    Case: "case",
    Coalesce: "coalesce",
    Aggregate: "aggregate",
    Order: "order",
    Frame: "frame",
    WindowFunction: "window function",
    SetFunction: "set function",
}
