"""Types that are known by their text, and JSON paths, beside Postgres: every SELECT of a script is answered as it answers."""

# ruff: noqa: E501 (scripts as people write them)
from __future__ import annotations

import itertools
import random

import pytest

from headrace.sidecar.cli.replay_sql import run_script
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.select_checks import Answer

_NUMBERS = itertools.count()


def wrong(postgres: EmbeddedPostgres, text: str) -> list[str]:
    """The SELECTs that are not answered as Postgres answers them, and why."""
    told = [a for a in run_script(postgres, f"replay_types_{next(_NUMBERS)}", text) if isinstance(a, Answer)]
    assert told
    return [f"{a.line}: {a.status}: {a.reason}: {a.sql}" for a in told if a.status != "equal"]


TYPES = r"""
create type mood as enum ('sad','ok','happy');
create domain plain as varchar(5);
create domain posint as int check (value > 0);
create table t(id int primary key, m mood, r int4range, n numrange, i inet, d plain, j jsonb, na name, ms mood[]);
insert into t values (1,'happy','[1,5]','[1.0,2.0)','10.0.0.1/8','abc','{"a":1}','x','{sad,ok}'),(2,'sad','[3,10)','[1,2)','10.0.0.1','b','{"a":1.0}','y','{}'),(3,'ok',null,'empty','192.168.0.0/16',null,'[1]','z',null),(4,'ok','empty','(,5]','::1','q','null','w','{happy}');
select * from t;
select id from t where m > 'sad';
select id from t where m = 'ok' or m <> 'sad';
select min(m), max(m), min(i), max(i) from t;
select m, count(*) from t group by m;
select id, m from t order by m limit 2;
select id, m from t order by m desc, id limit 2;
select 'ok'::mood, 'ok'::mood < 'happy'::mood, 'x'::plain;
select 'nope'::mood;
select row_number() over (order by m, id), id from t;
select array_agg(m order by m), string_agg(m::text, ',' order by m desc) from t;
select id from t where r @> 4;
select id from t where r && '[4,6]';
select id from t where r && int4range(4,6,'[]');
select lower(r), upper(r), isempty(r), lower_inc(r), upper_inf(n) from t;
select n = '[1.00,2.00)' from t;
select a.id, b.id from t a join t b on a.n = b.n;
select a.id, b.id from t a join t b on a.j = b.j;
select j = '{"a": 1}', j < '[]' from t;
select id from t where i << '10.0.0.0/8';
select host(i), masklen(i), network(i), i + 5, family(i), netmask(i), broadcast(i), i::text, abbrev(i) from t;
select '10.1'::cidr, '10.1.2.3'::inet, cidr '10', inet '1.2.3.4/24', '08002b:010203'::macaddr, macaddr '08:00:2b:01:02:03' < '08:00:2b:01:02:04';
select na < 'y', na = 'x', na || '!', length(na) from t;
select r * '[2,4)', r - '[3,4)'::int4range, r + '[5,6)' from t where id < 3;
select r -|- '[6,8)', r << '[100,101)', r &< '[1,6)' from t;
select '{[1,3),[5,7)}'::int4multirange @> 6, int4multirange(int4range(1,3), int4range(2,5)), '{[1,3)}'::int4multirange - '{[2,3)}';
select daterange('2020-01-01','2020-02-01') @> '2020-01-15'::date, tsrange('2020-01-01', null), numrange(1,2), int8range(1,5,'[]');
select numrange(1, 2) < numrange(1,3), greatest(int4range(1,2), int4range(1,4)), coalesce(r, 'empty') from t;
select ms, ms[1] from t;
select distinct m from t order by m;
select distinct on (m) m, id from t order by m desc, id;
select m from t union select 'ok' order by 1 limit 2;
select case when m in ('sad','ok') then 'low' else 'high' end, m between 'sad' and 'ok' from t;
select count(distinct m), count(distinct r) from t;
select lag(m) over (order by m, id) from t;
select id from t where m = any ('{ok,sad}');
select id from t where m = any (array['ok','sad']::mood[]);
select json '{"a":1}', jsonb '[1]', j #- '{a}' from t;
select max(na), min(na) from t;
select * from t order by na limit 1;
select j from t order by j limit 2;
select count(*) from t where j = '{"a":1}';
select int4range(1,2) = any (array[int4range(1,2)]);
select n from t where n = '[1.0,2)';
select isempty('empty'::int4range), '[a,b]'::int4range;
select int4range(5,1);
select 'x'::name, 'abc'::name || 'd';
"""

PATHS = r"""
select jsonb_set('{"a":{"b":[1,2]}}', '{a,b,1}', '5'), jsonb_set('{"a":1}', '{c}', '2', false), jsonb_set('[1,2]', '{-9}', '0'), jsonb_set('{"a":1,"b":[0,1,2],"c":{"d":4}}','{b,-33}','{"foo":123}');
select jsonb_insert('{"a": [0,1,2]}', '{a, 1}', '"new_value"'), jsonb_insert('{"a": [0,1,2]}', '{a, 1}', '"new_value"', true), jsonb_insert('{"a": {"b": "value"}}', '{a, c}', '"new_value"');
select jsonb_insert('{"a": {"b": "value"}}', '{a, b}', '"new_value"');
select '{"a":1, "b":[1,2]}'::jsonb #- '{b,0}', jsonb_delete_path('{"a":1}', '{a}');
select ('{"a":{"b":[1,"x"]}}'::jsonb)['a']['b'][1], ('[1,2]'::jsonb)[-1], ('[1,2]'::jsonb)['a'];
select json_object('{a,1,b,2}'), jsonb_object('{{b,1},{a,null}}'), json_object('{a,b}','{1,2}');
select json_object('{a,b,c}');
select jsonb '{"a": 12}' @? '$', jsonb '{"a": 12}' @? '$.a.b', jsonb '{"a": {"a": 12}}' @? '$.*.a', jsonb '[1,2,3]' @@ '$[*] > 2';
select jsonb_path_query('[1,2,{"a":3}]', '$[*].a'), 1 as x;
select * from jsonb_path_query('{"a": [1,2,3,4,5]}', '$.a[*] ? (@ >= $min && @ <= $max)', '{"min":2,"max":4}');
select jsonb_path_query_array('[{"a": 1}, {"a": 2}, {}]', '$[*].a'), jsonb_path_query_first('[{"a": 1}, {"a": 2}, {}]', '$[*].a');
select jsonb_path_query('[12, {"a": 13}, {"b": 14}]', 'strict $[*].a');
select jsonb_path_query('{"a": {"b": {"c": 1}}}', '$.**{1 to 2}');
select jsonb_path_query('[null, 1, true, "a", [], {}]', '$[*].type()'), jsonb_path_query_array('[1, "2", -3.5]', '$[*].double()'), jsonb_path_query('[1.5,-2.5]', '$[*].floor()');
select jsonb_path_query('["abc", "abd", "aBdC"]', '$[*] ? (@ like_regex "^ab.*c" flag "i")'), jsonb_path_query('["", "a", "abc"]', '$[*] ? (@ starts with "ab")');
select jsonb_path_exists('{"a":1}', '$.a ? (@ > 0)'), jsonb_path_match('{"a":1}', '$.a == 1'), jsonb_path_match('1', '$');
select jsonb_path_query('{"a": 2}', '($.a + 1) * -2 % 3'), jsonb_path_query('1', '$ / 0');
select jsonb '{"a": [1,2]}' @? '$.a[last]', jsonb_path_query('[1,2,3]', '$[last - 1 to last]');
select jsonb_contains('{"a":1}', '{}'), jsonb_exists('{"a":1}', 'a'), jsonb_concat('[1]','[2]');
select pg_input_is_valid(v, 'int4range'), pg_input_is_valid(v, 'numeric(4,1)'), pg_input_is_valid(v, 'inet')
from (values ('[1,2)'), ('[2,1]'), ('5.55'), ('55555'), ('10.0.0.1'), ('x')) t(v);
select ('{"a":1}'::jsonb -> 'a')::int, max(x) from (values (1)) v(x);
"""


@pytest.mark.parametrize("script", [TYPES, PATHS], ids=["types", "paths"])
def test_values_are_what_they_are_on_postgres(postgres: EmbeddedPostgres, script: str) -> None:
    assert wrong(postgres, script) == []


RANGES = ["numrange", "int4range", "daterange", "int4multirange", "nummultirange"]


def _ends(chance: random.Random, name: str) -> str:
    def value() -> str:
        if chance.random() < 0.15:
            return ""
        number = chance.randint(-3, 6)
        if name.startswith("date"):
            return f"2024-01-{number + 10}"
        parts = ["0", "5"] if "multi" in name else ["0", "5", "50"]
        return str(number) if name.startswith("int") else f"{number}.{chance.choice(parts)}"

    low, high = value(), value()
    if low and high and (low > high if name.startswith("date") else float(low) > float(high)):
        low, high = high, low
    return chance.choice("[(") + f"{low},{high}" + chance.choice("])")


def _image(chance: random.Random, name: str) -> str:
    if "multi" in name:
        return "{" + ",".join(_ends(chance, name) for _ in range(chance.randint(0, 3))) + "}"
    return "empty" if chance.random() < 0.1 else _ends(chance, name)


@pytest.mark.parametrize("seed", range(2))
def test_ranges_of_any_bounds(postgres: EmbeddedPostgres, seed: int) -> None:
    chance = random.Random(seed)
    script = ""
    for name in RANGES:
        pairs = ", ".join(f"({i}, '{_image(chance, name)}', '{_image(chance, name)}')" for i in range(40))
        tests = ", ".join(f"a {sign} b" for sign in ("=", "<", ">=", "&&", "@>", "<@", "<<", ">>", "&<", "&>", "-|-"))
        script += f"""
create table {name}_t (id int primary key, a {name}, b {name});
insert into {name}_t values {pairs};
select id, a, b, {tests}, a * b from {name}_t;
select id, lower(a), upper(a), lower_inc(a), upper_inc(a), lower_inf(a), upper_inf(a), isempty(a) from {name}_t;
select x.id, y.id from {name}_t x join {name}_t y on x.a = y.b;
select id, row_number() over (order by a, id) from {name}_t;
"""
        if "multi" in name:
            script += f"select a + b, a - b from {name}_t;\n"
        else:
            script += f"select range_merge(a, b) from {name}_t;\nselect a + b from {name}_t where a && b;\n"
    assert wrong(postgres, script) == []
