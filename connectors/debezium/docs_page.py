"""docs/debezium.md, written from the settings themselves: `python -m headrace.connectors.debezium.docs_page docs/debezium.md`.

Always: the same settings give the same text; a test compares the file with it. Without an argument it prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.connectors.debezium.config_rules import RULES
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, LEFT_OUT, SETTINGS, Setting

_HEAD = """# Debezium's Postgres connector, as we set it

This page is generated (`python -m headrace.connectors.debezium.docs_page docs/debezium.md`); change the settings in
`connectors/debezium/settings.py` and the checks in `connectors/debezium/config_rules.py`.

`headrace init --from postgresql://… --register --connect http://connect:8083` writes this configuration to
`connectors/<source>.json` and registers it. `run` checks what is registered before it starts.

## Settings, why, and what each costs

Values in braces are filled in: `{prefix}` is the source's `topic_prefix`; `{poll_ms}` is 10 unless told otherwise,
`{heartbeat_ms}` 1000, `{linger_ms}` 5, `{partitions}` and `{replication}` 1.

| setting | value | why | what it costs |
| --- | --- | --- | --- |
"""

_TRAPS = """
## What goes wrong in silence without them

Each was seen on Debezium 3.6.3 with Postgres 18; the checks refuse each.

- **NULL becomes the column's DEFAULT.** Kafka's JSON converter writes a column's default where the row holds NULL,
  with and without schemas. `value.converter.replace.null.with.default=false` ends it.
- **A partitioned table captured by its root alone loses every change.** The snapshot comes, then nothing: changes are
  named by their partition, which the list leaves out; the transaction's END counts no event. List the partitions, or
  set `publish.via.partition.root=true`.
- **A partitioned table captured by its root and its partitions comes twice** in the snapshot.
- **With `publish.via.partition.root=true` a TRUNCATE of one partition is not published** by Postgres at all.
- **A heartbeat alone moves nothing.** Its record carries no LSN, and with an action query on a table outside the
  publication neither the slot nor the frontier moves. The heartbeat table must be captured.
- **TRUNCATE is dropped by default** (`skipped.operations=t`).
- **A value that cannot be converted becomes NULL**, and Connect's log alone says so: an array of numerics with a NaN in
  it, for one. `event.converting.failure.handling.mode=fail` stops the connector instead, with the column in its state.
- **Timestamps of three digits or fewer come in milliseconds** under `time.precision.mode=adaptive`, the others in
  microseconds; without schemas the reader must be told (`time_precision_mode` in headrace.yaml).
- **Timestamps before 1677-09-21 and after 2262-04-11 come as NULL** under `time.precision.mode=nanoseconds`: it is refused where
  a declared column of type `timestamp` may be NULL, and should not be set where columns are not declared.

## What no setting mends

Debezium sends other values than the table holds, and nothing in the record tells. Leave such columns out, or keep their
values in a column of text; `headrace audit` finds the rows.

- **Dates before the year 1**: `4713-01-01 BC` comes as `4713-01-01`. Timestamps come as they are, but
  for those in arrays: of `timestamptz[]` they come without BC as well, of `timestamp[]` moved by the days
  between the Julian calendar and ours.
- **The timestamp `294247-01-10 04:00:25.2`** comes as `infinity` comes. Those after 04:00:54.775805 of that day come as the
  greatest integer or wrapped around, and are refused like any record that cannot be decoded.
- **Arrays of more than one dimension**: of numbers they come as NULLs; of texts as Java's names of objects, which are
  refused like any record that cannot be decoded. `headrace init` warns where a column is declared with dimensions.
- **A partition that is dropped or detached** takes its rows along without an event: they stay in the views until `headrace
  resync` of the table.
- **`time with time zone`** comes in UTC: `12:00:00+02` is `10:00:00+00`, which Postgres tells apart.

## The heartbeat table

```sql
{heartbeat};
```

Each heartbeat is written over the one before it, and with this replica identity says which that was: the sidecar stops where one
does not follow on the last, since changes between them were lost (a source restored from an older copy).

`headrace init` prints the SQL of a role with the least rights, its publication and this table. A role that does not
own the tables needs `publication.autocreate.mode=disabled` and the publication made beforehand: Debezium alters an
existing publication in `filtered` mode.

## Checked before a run

Refused findings stop what depends on the connector; the others are advice.

| setting | Debezium's default | right | why | refused |
| --- | --- | --- | --- | --- |
"""

_MORE = """
Besides: transforms (any but a few harmless ones are refused), converters other than JSON, precise decimals without
schemas, decimals as JSON numbers, compacted topics, a transaction topic of several partitions, snapshots that select
a part of the rows, `message.key.columns`, tables of headrace.yaml that `table.include.list` misses or takes twice,
and every mode in which headrace.yaml and the connector disagree.

## Left out on purpose

"""


_SIGNALS = """
## Incremental snapshots by signal

A row of an incremental snapshot belongs to no transaction. Debezium commits a watermark to its signal table, reads a chunk,
commits another, leaves out each row that changed between them, and sends the rest where it meets the second one in the
stream. There Headrace puts them: after every transaction before it, and before any that has a later event in the
partition, as an epoch of their own. So a published state never shows a row early, nor an old one over a newer. The signal
table (`signal.data.collection`) must be in `table.include.list`; headrace.yaml need not name it. Topics may have several
partitions.

- **Tables without a key** are refused: such a row would come twice. The table is suspended, by name.
- **`read.only=true` with signals** is refused: there are no watermarks in the stream, and rows come before the transactions
  that they show.
- **A TRUNCATE while its table is read**: Debezium sends rows of the chunk that it took away. Headrace leaves them out,
  also when it was started again meanwhile; not where another signal was written between the two watermarks: `headrace
  resync` of the table, once the snapshot is over, finds them then.
- **Partitions added to a topic** send its keys elsewhere, so a row may be read from the partition of before only after a later
  change of its key was published from another. It is left out: of a table whose topic has several partitions, the keys of the
  last 10,000 changes are remembered (1,000 of them in checkpoints). A row that comes later than that is an error, which names
  its place.
- **A row that is gone from the source** stays: an incremental snapshot sends no deletes. `headrace resync` finds it.
- **A commit that the stream has, and that nobody could see yet** when the chunk was read, may come before the first watermark;
  the chunk then has the row as it was. Postgres shows a commit after it has written it: some microseconds later, milliseconds
  on a machine with more work than cores, as long as a synchronous standby takes. `headrace audit` finds such a row. A trigger
  prevents it: the first watermark waits for the transactions that write to the table, and later ones for its commit. It locks
  the tables that you signal, in the order in which your transactions write to them:

  ```sql
  create function headrace.settle() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
  begin
    if new.type = 'snapshot-window-open' then lock table public.orders in share mode; end if;
    return new;
  end $$;
  create trigger settle before insert on headrace.signal for each row execute function headrace.settle();
  ```
"""


def document() -> str:
    """The page's whole text."""
    rows = "".join(_row(s) for s in SETTINGS)
    rules = "".join(
        f"| `{r.setting}` | {_code(r.default)} | {' or '.join(_code(v) for v in r.right)} | {r.why} | "
        f"{'yes' if r.refused else 'no'} |\n"
        for r in RULES
    )
    left = "".join(f"- `{name}`: {why}\n" for name, why in LEFT_OUT)
    return _HEAD + rows + _TRAPS.replace("{heartbeat}", ";\n".join(HEARTBEAT_DDL)) + rules + _MORE + left + _SIGNALS


def _row(s: Setting) -> str:
    return f"| `{s.name}` | {_code(s.value)} | {_cell(s.why)} | {_cell(s.cost)} |\n"


def _code(text: str) -> str:
    return f"`{text}`" if text.startswith(("{", "io.", "org.")) or " " not in text else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the page into the file named, or print it."""
    if arguments:
        Path(arguments[0]).write_text(document())
    else:
        sys.stdout.write(document())


if __name__ == "__main__":
    main(sys.argv[1:])
