"""Each message between driver and workers comes out as it went in, and a worker knows what to do with it."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from headrace.sidecar.execution.workers import messages
from headrace.sidecar.execution.workers.messages import Answer, Command, Question, Told, Write
from headrace.sidecar.execution.workers.worker import Serving, Worker

SAID = [*get_args(Told), Write]
VALUES: dict[str, Any] = {
    "table": "public.t", "columns": [1, 2], "errors": {"e": -1}, "epoch": 7, "upper": 8, "fuel": 9, "tables": ["a", "b"],
    "runs": [3], "view": "v", "as_of": 4, "frontier": 5, "files": {"a": [["f", 1, 0]]}, "count": 2, "number": 6, "name": "n",
    "last": 11, "work": 12,
    "beside": None, "names": ["x"], "fingerprints": ["y"],
}  # fmt: skip


@pytest.mark.parametrize("kind", SAID, ids=lambda kind: kind.__name__)
def test_a_message_comes_out_as_it_went_in(kind: type[Any]) -> None:
    said = kind(**{f.name: VALUES[f.name] for f in fields(kind)})
    found, parts = messages.read_as(messages.sent_as(said, [[b"abc"], [], [b"d", b"e"]]))
    assert found == said
    assert parts == [[b"abc"], [], [b"d", b"e"]]


def test_there_is_no_other_message() -> None:
    kinds = {kind for _, kind in inspect.getmembers(messages, inspect.isclass) if issubclass(kind, Command | Question)}
    assert kinds - {Command, Question} == set(SAID)


@pytest.mark.parametrize("kind", SAID, ids=lambda kind: kind.__name__)
def test_a_question_names_the_class_of_its_answer(kind: type[Any]) -> None:
    if not issubclass(kind, Question):
        assert issubclass(kind, Command)
        return
    [base] = kind.__orig_bases__  # type: ignore[attr-defined]
    assert get_args(base) == (kind.answer,)
    assert kind.answer in get_args(Answer)


@pytest.mark.parametrize("kind", get_args(Answer), ids=lambda kind: kind.__name__)
def test_the_head_of_an_answer_is_json(kind: type[Any]) -> None:
    assert {f.name for f in fields(kind)} == set(get_type_hints(kind))
    made = kind(**{f.name: [1, 2] for f in fields(kind)})
    assert kind(**json.loads(json.dumps(vars(made)))) == made


def test_a_worker_does_each_message() -> None:
    text = inspect.getsource(Serving.do) + inspect.getsource(Worker.do)
    assert [kind.__name__ for kind in get_args(Told) if f"messages.{kind.__name__}(" not in text] == []
