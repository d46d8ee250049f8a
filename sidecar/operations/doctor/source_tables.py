"""Compares the tables of headrace.yaml with the catalog: each must exist, have a replica identity, be logged, and have the
declared types.

Pure: of facts of the catalog and declarations, findings. Called by `source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.connectors.formats.column_decoders import decoder
from headrace.connectors.formats.encodings import declared_precision, from_declared
from headrace.connectors.formats.table_specs import CannotDecode
from headrace.engine.errors import TypeNotSupported
from headrace.engine.schema import DataType
from headrace.sidecar.config.sources import ColumnConfig, SourceConfig, TableConfig
from headrace.sidecar.intake.connector_preflight import encodings_of
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, identifier, psql, refused, table

S = Subject.SOURCE
_INIT = 'headrace init --from "$SOURCE_URL" --force'


def check_tables(
    source: SourceConfig,
    place: str,
    facts: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Sequence[Mapping[str, Any]]],
    leaves: Mapping[str, Sequence[str]],
) -> Iterator[Finding]:
    """What is wrong with the tables of a source. `leaves`: of each root, those that the catalog has."""
    for declared in source.tables or ():
        where = f"{place}, {declared.name}"
        fact = facts.get(declared.name)
        if fact is None:
            yield refused(
                S,
                "table",
                where,
                "the table is not there",
                "views of it no longer change; take it out of headrace.yaml "
                "and its views, or write the configuration anew",
                _INIT,
            )
            continue
        yield from _identity(declared, where, facts)
        yield from _partitions(declared, where, leaves)
        for name in declared.partitions or (declared.name,):
            if name in facts and not facts[name]["logged"]:
                yield refused(
                    S,
                    "logged",
                    f"{place}, {name}",
                    "the table is unlogged",
                    "its changes never reach the WAL",
                    psql("SOURCE_URL", f"ALTER TABLE {table(name)} SET LOGGED"),
                )
        there = {row["name"]: row for row in columns.get(declared.name, ())}
        for column in declared.columns or ():
            yield from _column(source, declared, column, where, there.get(column.name))


def _identity(declared: TableConfig, where: str, facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    keyed = facts[declared.name]["key"]
    if declared.key is not None and keyed is not None and list(declared.key) != list(keyed):
        yield refused(
            S,
            "key",
            where,
            f"its primary key is {', '.join(keyed)}, in headrace.yaml {', '.join(declared.key)}",
            "rows are taken for others",
            _INIT,
        )
    for name in declared.partitions or (declared.name,):
        fact = facts.get(name)
        if fact is None:
            continue
        key, identity = fact["key"], fact["identity"]
        if identity == "n" or (key is None and identity == "d"):
            to = "FULL" if key is None else "DEFAULT"
            yield refused(
                S,
                "replica_identity",
                where if name == declared.name else f"{where}, {name}",
                "it has no replica identity",
                "Postgres refuses the application's UPDATE and DELETE once it is published",
                psql("SOURCE_URL", f"ALTER TABLE {table(name)} REPLICA IDENTITY {to}"),
            )


def _partitions(declared: TableConfig, where: str, leaves: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    there, known = set(leaves.get(declared.name, ())), set(declared.partitions)
    for name in sorted(there - known):
        yield refused(
            S,
            "partition",
            where,
            f"headrace.yaml does not declare the partition {name}",
            "its rows are missing from the views",
            _INIT,
        )
    for name in sorted(known - there) if there else ():
        yield advice(
            S,
            "partition_gone",
            where,
            f"the partition {name} is not there any more",
            "its rows stay in the views where it was detached or dropped",
            f"headrace resync {declared.name}",
        )


def _column(
    source: SourceConfig, declared: TableConfig, column: ColumnConfig, where: str, there: Mapping[str, Any] | None
) -> Iterator[Finding]:
    at = f"{where}.{column.name}"
    if there is None:
        yield refused(S, "column", at, "the column is not there", "views that name it are suspended", _INIT)
        return
    if there["generated"]:
        yield refused(
            S,
            "generated",
            at,
            "the column is generated",
            "Debezium sends it in the snapshot and not in changes: leave it out of headrace.yaml and compute it in the view, "
            "or make it a plain column",
            psql(
                "SOURCE_URL",
                f"ALTER TABLE {table(declared.name)} ALTER COLUMN {identifier(column.name)} DROP EXPRESSION",
            ),
        )
    bent = _bent(source, there)
    if bent is not None:
        cast = f"ALTER COLUMN {identifier(column.name)} TYPE text USING {identifier(column.name)}::text"
        yield refused(
            S,
            "type_bent",
            at,
            bent[0],
            f"{bent[1]}; where the type is changed, change it in headrace.yaml too",
            psql("SOURCE_URL", f"ALTER TABLE {table(declared.name)} {cast}"),
        )
        return
    if there["dimensions"] > 1:
        yield advice(
            S,
            "array_dimensions",
            at,
            "it is an array of several dimensions",
            "Debezium sends the values of arrays of one dimension alone: leave it out of headrace.yaml",
            _INIT,
        )
    if _differ(column.data_type, there["data_type"]):
        yield refused(
            S,
            "type",
            at,
            f"it is {there['data_type']}, in headrace.yaml {column.data_type}",
            "its values are decoded as what they are not",
            _INIT,
        )
    if not column.nullable and not there["filled"]:
        yield refused(
            S,
            "nullable",
            at,
            "it may be NULL, in headrace.yaml it may not",
            "the first NULL stops the table",
            psql(
                "SOURCE_URL", f"ALTER TABLE {table(declared.name)} ALTER COLUMN {identifier(column.name)} SET NOT NULL"
            ),
        )


def _bent(source: SourceConfig, there: Mapping[str, Any]) -> tuple[str, str] | None:
    """What Debezium makes of a column's values that is not what they are, and what follows; None where nothing is."""
    if there["composite"]:
        return f"it is of the row type {there['data_type']}", "Debezium sends no composite types"
    try:
        kind = DataType.parse(there["data_type"])
        decoder(kind, from_declared(kind, encodings_of(source), declared_precision(there["data_type"])))
    except CannotDecode as error:
        return (
            f"{there['data_type']} does not arrive as it is: {error.reason}",
            error.hint or "its values cannot be decoded",
        )
    except TypeNotSupported as error:
        return f"{there['data_type']} is not known: {error}", "its values cannot be decoded"
    return None


def _differ(declared: str, there: str) -> bool:
    return (DataType.parse(declared), declared_precision(declared)) != (
        DataType.parse(there),
        declared_precision(there),
    )
