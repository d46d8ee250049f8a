"""Ports: distinct, kept, and a clear error when one is taken."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.errors import DevstackError


def test_picked_ports_are_distinct_free_and_out_of_the_way_of_clients() -> None:
    chosen = ports.pick(20)
    assert len(set(chosen)) == 20
    assert all(ports.is_free(port) and not ports.is_open(port) for port in chosen)


def test_a_folder_keeps_its_ports_and_adds_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = ports.kept(file, ("a", "b"))
    assert ports.kept(file, ("a", "b")) == first
    more = ports.kept(file, ("b", "c"))
    assert more["b"] == first["b"]
    assert len({first["a"], first["b"], more["c"]}) == 3


def test_a_taken_port_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    port = ports.kept(file, ("a",))["a"]
    with socket.socket() as other:
        other.bind((ports.HOST, port))
        other.listen()
        assert ports.is_open(port)
        with pytest.raises(DevstackError, match=f"taken by another program.*part=a, port={port}"):
            ports.kept(file, ("a",))
