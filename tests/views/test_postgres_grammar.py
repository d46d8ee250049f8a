"""The grammar that judges statements is Postgres's: on statements with a word lost, doubled or moved a real one agrees."""

from __future__ import annotations

import ctypes
import os
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.compile import compile_views
from headrace.views.errors import ViewError
from headrace.views.spec import ViewSpec
from headrace.views.sql.parsing.postgres_grammar import LONGEST, fault_of
from tests.views.corpus import SUPPORTED
from tests.views.shop import catalog

SEED, STATEMENTS = 5, 1200
_WORD = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|.", re.DOTALL)


@pytest.mark.parametrize(
    "sql",
    [
        "select 'a' rlike 'h'", "select 1 as 'one'", "select * from (values 1, 2) t", "select id, from orders",
        "select (id - total) second from orders", "select id from orders where id = 1 = true", "select array[1][1]",
        "select id from orders order by id where id > 1", "select extract(year, placed) from orders",
        "select id from orders limit 1 limit 2", "select interval 2", "select id from orders qualify true",
        "select sum(total) over (rows between current row and 1 preceding) from orders", "select 1.5x",
        "with a as (select 1) with b as (select 1) select 1", "select id from orders @o",
    ],
)  # fmt: skip
def test_what_sqlglot_reads_and_postgres_does_not_is_refused(sql: str) -> None:
    fault = fault_of(sql)
    assert fault is not None
    with pytest.raises(ViewError) as caught:
        compile_views([ViewSpec("v", sql)], catalog())
    assert (caught.value.what, caught.value.where["column"]) == (fault.reason, fault.offset + 1)


def test_places_count_characters_not_bytes() -> None:
    fault = fault_of("select 'Zürich ∑', x y z from t")
    assert fault is not None
    assert "select 'Zürich ∑', x y z from t"[fault.offset :] == "z from t"


def test_a_comment_may_stand_between_the_pieces_of_a_constant() -> None:
    assert fault_of("select 'one' -- ünd '\n 'two'\n -- and\n'three' from t") is None
    fault = fault_of("select 'one' -- ünd\n 'two', x y z from t")
    assert fault is not None
    assert fault.offset == "select 'one' -- ünd\n 'two', x y z from t".index("z from")


@pytest.mark.parametrize("sql", ["select 1" + "+1" * 50_000, "select " + "(" * 50_000, "select not " * 50_000])
def test_a_monstrous_statement_is_refused_and_ends_nothing(sql: str) -> None:
    with pytest.raises(ViewError, match=r"nested too deeply|syntax error"):
        compile_views([ViewSpec("v", sql)], catalog())


def test_a_statement_has_a_longest_length() -> None:
    fault = fault_of("select 1 --" + "x" * LONGEST)
    assert fault is not None
    assert str(LONGEST) in fault.reason


@pytest.fixture
def db(postgres: EmbeddedPostgres) -> Iterator[Any]:
    with psycopg.connect(postgres.url(), autocommit=True) as made:
        yield made


def test_it_stops_where_postgres_stops(db: Any) -> None:
    draw, refused = random.Random(SEED), 0
    for _ in range(STATEMENTS):
        sql = _changed(draw, draw.choice(SUPPORTED).sql)
        ours, theirs = fault_of(sql), _of_postgres(db, sql)
        found = None if ours is None else (ours.reason, ours.offset)
        assert found == theirs, sql
        refused += ours is not None
    assert STATEMENTS / 5 < refused < STATEMENTS * 0.95, "the draws tell refused from taken ones"


def _of_postgres(db: Any, sql: str) -> tuple[str, int] | None:
    """What its grammar refuses, and where; it has no tables, so that what passes is refused by the files behind the grammar."""
    try:
        db.execute(sql)
    except psycopg.Error as error:
        if error.diag.source_file in ("scan.l", "gram.y", "parser.c"):
            return str(error.diag.message_primary), int(error.diag.statement_position or 0) - 1
    return None


def _changed(draw: random.Random, sql: str) -> str:
    words = _WORD.findall(sql)
    for _ in range(draw.choice((1, 1, 2))):
        at, other = draw.randrange(len(words)), draw.randrange(len(words))
        match draw.randrange(3):
            case 0:
                words[at] = " "
            case 1:
                words.insert(at, f" {words[other].strip() or ','} ")
            case _:
                words[at], words[other] = words[other], words[at]
    return "".join(words)


def test_threads_that_ask_and_end_leave_no_key_of_the_process_behind() -> None:
    """There are 1,024 of them, and whatever needs one afterwards, as a client of Kafka does, could not be made."""
    library = ctypes.CDLL(None)

    def next_key() -> int:
        key = ctypes.c_uint()
        assert library.pthread_key_create(ctypes.byref(key), None) == 0
        library.pthread_key_delete(key)
        return key.value

    fault_of("select 1")
    before = next_key()
    for text in ("select 1 -- a comment", "select a rlike b -- a comment") * 5:
        thread = threading.Thread(target=fault_of, args=(text,))
        thread.start()
        thread.join()
    assert next_key() == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12 and later, where there are threads
def test_a_forked_process_asks_too() -> None:
    fault_of("select 1")
    child = os.fork()
    if child == 0:
        os._exit(0 if fault_of("select 1") is None and fault_of("selec 1") is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
