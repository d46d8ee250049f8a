"""What a format is told about its tables and about how their publisher encodes values.

A `TableSpec` is one table as views know it, however many leaf tables or topics it comes from. `Encodings` mirrors the
connector's settings of the same names: they matter only where messages carry no schema of their own. Built by wiring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Kind, Schema


class ConfigurationRefused(HeadraceError):
    """A setting under which values cannot be decoded exactly; names the setting and its right value."""

    code = "config"


TIME_MODES: Final = (
    "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
)  # fmt: skip
DECIMAL_MODES: Final = ("precise", "string", "double")
BINARY_MODES: Final = ("bytes", "base64", "base64-url-safe", "hex")
HSTORE_MODES: Final = ("json", "map")
INTERVAL_MODES: Final = ("string", "numeric")


@dataclass(frozen=True)
class TableSpec:
    """One table: its name as "schema.table", its columns and key, and the leaf tables that fold into it.

    partitions: names ("schema.table") of leaf tables whose changes are this table's own.
    precisions: column → fractional digits declared for a time or timestamp (`timestamp(3)` → 3); absent means 6. The
    engine's types carry none, and Debezium's adaptive modes encode by it.
    absent_is_null: columns that messages older than the column may lack; their value is then NULL.
    """

    name: str
    schema: Schema
    partitions: tuple[str, ...] = ()
    precisions: Mapping[str, int] = field(default_factory=dict)
    absent_is_null: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Encodings:
    """How the publisher encodes values, by the connector's own names. `unavailable_value`: the TOAST placeholder.

    decimal_handling_mode: None takes decimal strings, and says what to set where values are not such.
    """

    time_precision_mode: str = "adaptive"
    decimal_handling_mode: str | None = None
    binary_handling_mode: str = "bytes"
    hstore_handling_mode: str = "json"
    interval_handling_mode: str = "string"
    unavailable_value: str = "__debezium_unavailable_value"

    def __post_init__(self) -> None:
        checks = (
            ("time.precision.mode", self.time_precision_mode, TIME_MODES),
            ("decimal.handling.mode", self.decimal_handling_mode or "string", DECIMAL_MODES),
            ("binary.handling.mode", self.binary_handling_mode, BINARY_MODES),
            ("hstore.handling.mode", self.hstore_handling_mode, HSTORE_MODES),
            ("interval.handling.mode", self.interval_handling_mode, INTERVAL_MODES),
        )
        for setting, value, known in checks:
            if value not in known:
                raise ConfigurationRefused(
                    f"{setting} cannot be decoded", value=value, hint=f"use one of {', '.join(known)}"
                )

    def check(self, spec: TableSpec) -> None:
        """Refuse what schemaless messages of `spec` could not be decoded under. Raises ConfigurationRefused."""
        if self.decimal_handling_mode == "precise" and any(c.type.kind is Kind.NUMERIC for c in spec.schema.columns):
            raise ConfigurationRefused(
                "precise decimals cannot be decoded without a schema", table=spec.name,
                setting="decimal.handling.mode=precise",
                hint="set decimal.handling.mode=string on the connector, or let its messages carry their schema",
            )  # fmt: skip


class CannotDecode(Exception):
    """A value, column or record that cannot be decoded exactly. Stays inside the formats: becomes an `Undecodable`.

    `column`: the one that is at fault, where it is one. `gone`: it is not there at all.
    """

    def __init__(self, reason: str, hint: str = "", *, column: str | None = None, gone: bool = False) -> None:
        self.reason = reason
        self.hint = hint
        self.column = column
        self.gone = gone
        super().__init__(reason)
