"""IS JSON against Postgres: what is JSON, of which kind, with keys that differ, through changes; and wrong operands."""

from __future__ import annotations

from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer

SCRIPT = r"""
create table doc (id int primary key, said text, short varchar(9), j json, b jsonb);
insert into doc values (1, '{"a": 1, "\u0061": 2}', '[1]', '{"a": [{"b": 1, "b": 2}]}', '{"a": 1}'),
  (2, '"\ud800"', '1 2', '"\ud800"', '2'), (3, null, null, null, null),
  (4, ' [1, {"a": NaN}]', '{"a"', ' "\u0000"', '[]'), (5, '{"a": {"b": "\u0000"}}', '', '{}', 'null');
select id, said is json, said is not json object, said is json with unique keys, said is json scalar without unique from doc;
select id, short is json array, j is json with unique, j is json value, j is not json scalar, b is json object with unique keys
  from doc;
select count(*) filter (where said is json), bool_and(not b is json array) from doc where (j is json) is not false;
select id, (said is json value) and true, said is json keys from doc;
update doc set said = '{"a": {"b": 1}, "b": "\ud83d\ude00"}', j = '{"a": 1, "a": 1}', b = '[1]' where id < 3;
delete from doc where id = 4;
insert into doc values (6, '01', '-', 'true', '"x"'), (7, E'"\t"', E'\t1\n', ' 1 ', '1');
select case when said is json with unique keys then said::jsonb end, null is json as n, 'x' is json as x,
  said is not normalized as f from doc;
select said || '1' is json, short is json is true from doc where not short is json;
select id is json from doc;
select said = said is json from doc;
select said is json with keys from doc;
"""


def test_is_json_through_changes(postgres: EmbeddedPostgres) -> None:
    found = [a for a in run_script(postgres, "is_json", SCRIPT) if isinstance(a, Answer)]
    assert len(found) == 9
    told = [(a.sql, a.status, a.reason) for a in found if (a.status, a.reason) != ("equal", "")]
    assert [(status, reason) for _, status, reason in told] == [
        ("equal", "cannot use type integer in IS JSON predicate"),
        ("equal", "cannot use type boolean in IS JSON predicate"),
        ("equal", 'syntax error at or near "keys"'),
    ], told
