"""Requests to a running sidecar are files that are answered once, and of which nothing secret stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.requests import Refused, RequestError, Requests, ask


def test_requests_are_files(tmp_path: Path) -> None:
    requests, clock = Requests(tmp_path), iter(range(100))
    assert list(requests.take()) == []

    def answered(_: float) -> None:
        for request in requests.take():
            assert (request.does, request.of) == ("resync", {"table": "t"})
            assert [f.read_bytes() for f in (tmp_path / "requests").iterdir()] == [b""], "a secret does not stay there"
            requests.answer(request, {"rows": 3})

    assert ask(tmp_path, "resync", {"table": "t"}, 50, answered, lambda: next(clock)) == {"rows": 3}

    def refused(_: float) -> None:
        for request in requests.take():
            requests.answer(request, RequestError("no", hint="try", table="t"))

    with pytest.raises(Refused, match=r"no .table=t.; try"):
        ask(tmp_path, "resync", {}, 50, refused, lambda: next(clock))
    with pytest.raises(RequestError, match="no sidecar answered"):
        ask(tmp_path, "resync", {}, 3, lambda _: None, lambda: next(clock))
    assert list((tmp_path / "requests").iterdir()) == []
    (tmp_path / "requests" / "x.asked").write_text("{")
    assert list(requests.take()) == []
    assert list((tmp_path / "requests").iterdir()) == []
