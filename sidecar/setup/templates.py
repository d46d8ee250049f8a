"""The files that a project starts with: headrace.yaml, and example views over the tables that were found.

Pure: of what a database was found to hold, the texts. Always: every text reads back as exactly what it stands for; a
column that no record brings, or brings decodable, stands there as a comment that says why. Called by
`headrace.sidecar.setup.scaffold`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from headrace.connectors.debezium import connect
from headrace.connectors.formats.column_decoders import decoder
from headrace.connectors.formats.encodings import from_declared
from headrace.connectors.formats.table_specs import CannotDecode, Encodings
from headrace.engine.schema import DataType
from headrace.sidecar.setup.introspection import Column, Table


def unsent(column: Column) -> CannotDecode | None:
    """Why views cannot use the column, with a remedy; None where they can."""
    if column.generated:
        return CannotDecode("generated: in the snapshot but not among changes", "compute it in the view")
    if column.composite:
        return CannotDecode(f"{column.data_type}: Debezium sends no composite types", "cast it to text in the source")
    kind = DataType.parse(column.data_type)
    try:
        decoder(kind, from_declared(kind, Encodings(time_precision_mode="microseconds")))
    except CannotDecode as error:
        return error
    return None


def headrace_yaml(
    tables: Sequence[Table],
    source_name: str,
    topic_prefix: str,
    bootstrap: str,
    connector: Mapping[str, str],
    connect_url: str | None = None,
    workers: int = 1,
) -> str:
    """A starting headrace.yaml that decodes as `connector` encodes."""
    modes = [
        f"    {mode.replace('.', '_')}: {_scalar(connector[mode])}"
        for mode in ("time.precision.mode", "decimal.handling.mode", "interval.handling.mode")
    ]
    lines = [
        "version: 1",
        f"name: {_scalar(source_name)}",
        "state: ./state                       # folder of checkpoints and reclock log",
        f"kafka: {{bootstrap.servers: {json.dumps(bootstrap)}}}   # any librdkafka key passes through untouched",
        "sources:",
        f"  - name: {_scalar(source_name)}",
        "    type: debezium",
        f"    topic_prefix: {_scalar(topic_prefix)}",
        *([f"    connect: {json.dumps(connect.shown_url(connect_url))}"] if connect_url else []),
        '    # database: "${env:SOURCE_URL}"     # libpq URL, for `headrace audit` and `headrace resync` alone',
        *modes,
        "    tables:",
    ]
    for t in tables:
        lines.append(f"      - name: {_scalar(t.name)}{_comment(t.comment)}")
        key = "null   # no primary key: kept as a multiset" if t.key is None else _list(t.key)
        lines.append(f"        key: {key}")
        if t.partitions:
            lines.append(f"        partitions: {_list(t.partitions)}")
        lines.append("        columns:")
        for c in t.columns:
            nullable, why = str(c.nullable).lower(), unsent(c)
            labels = f", labels: [{', '.join(map(_scalar, c.labels))}]" if c.labels else ""
            entry = f"- {{name: {_scalar(c.name)}, data_type: {_scalar(c.data_type)}, nullable: {nullable}{labels}}}"
            lines.append(f"          {'# ' if why else ''}{entry}{_comment(why.reason if why else c.comment)}")
    lines += [
        "sinks:                               # a view goes to those that its `sinks:` names",
        '  - {name: warehouse, type: postgres, url: "${env:WAREHOUSE_URL}", schema: headrace}',
        "  # views as compacted topics of the cluster above, one each: choose a prefix that is yours to write to",
        "  - {name: bus, type: kafka, topic_prefix: views., format: json}",
        "views: ./views",
        "http: 127.0.0.1:8088",
        f"engine: {{workers: {workers}}}                 # processes that share the work",
    ]
    return "\n".join(lines) + "\n"


def example_views(tables: Sequence[Table]) -> str:
    """Two views to begin with: the count of the largest table, and sums along a foreign key where there is one."""
    largest = max(tables, key=lambda t: t.rows)
    name = _plain(largest.name.partition(".")[2])
    count = f"SELECT count(*) AS row_count FROM {qualified(largest.name)}"  # noqa: S608 (text for a file; quoted)
    lines = [
        "version: 1",
        "views:",
        f"  - name: {name}_count",
        f"    description: How many rows {largest.name} has",
        f"    sql: {json.dumps(count)}",
        "    sinks: [warehouse]",
    ]
    by_name = {t.name: t for t in tables}
    pairs = [(c, k) for c in tables for k in c.foreign_keys if k.target in by_name and k.target != c.name]
    if pairs:
        # The pair with the largest child says most; the order of `pairs` settles a tie.
        child, key = max(pairs, key=lambda pair: pair[0].rows)
        lines += _join_view(child, by_name[key.target], key.columns, key.target_columns)
    return "\n".join(lines) + "\n"


def _join_view(child: Table, parent: Table, columns: Sequence[str], targets: Sequence[str]) -> list[str]:
    kind = {c.name: c.data_type for c in parent.columns}
    taken = set(columns) | set(child.key or ())
    label = next((c for c, k in kind.items() if c not in targets and re.match(r"text|character varying", k)), None)
    number = next(
        (
            c.name
            for c in child.columns
            if c.name not in taken and re.match(r"numeric|integer|bigint|smallint", c.data_type)
        ),
        None,
    )
    grouped = [f"p.{quoted(c)}" for c in (*targets, *([label] if label else []))]
    short = _plain(child.name.partition(".")[2])
    chosen = [*grouped, f"count(*) AS {short}_count"]
    if number:
        chosen.append(f"sum(c.{quoted(number)}) AS {_plain(number)}_sum")
    on = " AND ".join(f"c.{quoted(a)} = p.{quoted(b)}" for a, b in zip(columns, targets, strict=True))
    return [
        f"  - name: {short}_by_{_plain(parent.name.partition('.')[2])}",
        f"    description: What {child.name} holds for each row of {parent.name}",
        f"    key: {_list(targets)}",
        "    sql: |",
        f"      SELECT {', '.join(chosen)}",
        f"      FROM {qualified(child.name)} AS c",
        f"      JOIN {qualified(parent.name)} AS p ON {on}",
        f"      GROUP BY {', '.join(grouped)}",
        "    sinks: [warehouse]",
    ]


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "none"})
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(
    """
    all and any array as asc both case cast check collate column constraint create cross current_date desc
    distinct do else end except false fetch for foreign from full grant group having in initially inner
    intersect into is join lateral leading left like limit natural not null offset on only or order outer
    placing primary references returning right select some table then to trailing true union unique user using
    variadic when where window with
    """.split()  # noqa: SIM905 (a list of ninety quoted words would be harder to read)
)


def _scalar(text: str) -> str:
    """A YAML scalar that reads back as exactly this text."""
    return text if _BARE.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)


def _list(items: Sequence[str]) -> str:
    return "[" + ", ".join(_scalar(i) for i in items) + "]"


def _comment(text: str | None) -> str:
    return f"   # {' '.join(text.split())}" if text and text.strip() else ""


def quoted(identifier: str) -> str:
    """An identifier as SQL needs it."""
    if _IDENTIFIER.fullmatch(identifier) and identifier not in _RESERVED:
        return identifier
    return '"' + identifier.replace('"', '""') + '"'


def qualified(name: str) -> str:
    """A table's name, schema.table, as SQL needs it."""
    schema, _, table = name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}"


def _plain(name: str) -> str:
    """A name for a view or an output column, made of what needs no quoting."""
    made = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "table"
    return made if _IDENTIFIER.fullmatch(made) else f"t_{made}"
