"""The pinned jars: the list's form, its hashes, and the two ways of fetching, as far as they need no network."""

from __future__ import annotations

import hashlib
import re
import ssl
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from headrace.sidecar.devstack import jar_fetch, jars
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.java import find_java

COORDINATES = ("org.a:one:1.0", "org.b:two:2.0.Final")


def pinned(folder: Path, coordinates: str, content: bytes) -> jars.Jar:
    group, artifact, version = coordinates.split(":")
    jar = jars.Jar(group, artifact, version, hashlib.sha256(content).hexdigest())
    (folder / jar.file_name).write_bytes(content)
    return jar


def test_the_list_holds_every_root_once_and_no_address() -> None:
    pins = jars.read_lock()
    names = [(jar.group, jar.artifact) for jar in pins]
    assert len(names) == len(set(names))
    assert set(jars.ROOTS) <= {jar.coordinates for jar in pins}
    assert not re.search(r"://|[a-z]\.(com|org|io)/", jars.LOCK.read_text())


def test_a_line_of_another_form_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text("# list\norg.a:one:1.0 sha256:00\n")
    with pytest.raises(DevstackError, match=r"jars\.lock:2: "):
        jars.read_lock(lock)


def test_the_digest_changes_with_any_pin(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"org.a:one:1.0 sha256:{'0' * 64}\n")
    first = jars.lock_digest(lock)
    lock.write_text(f"# a comment\norg.a:one:1.0 sha256:{'0' * 64}\n")
    assert jars.lock_digest(lock) == first
    lock.write_text(f"org.a:one:1.1 sha256:{'0' * 64}\n")
    assert jars.lock_digest(lock) != first


def test_only_complete_and_true_folders_pass(tmp_path: Path) -> None:
    pins = [pinned(tmp_path, coordinates, coordinates.encode()) for coordinates in COORDINATES]
    jars.verify(tmp_path, pins)
    (tmp_path / pins[1].file_name).write_bytes(b"other")
    with pytest.raises(DevstackError, match=r"not the pinned one.*org\.b:two"):
        jars.verify(tmp_path, pins)
    (tmp_path / pins[1].file_name).unlink()
    with pytest.raises(DevstackError, match=r"was not fetched.*org\.b:two"):
        jars.verify(tmp_path, pins)


def test_a_tampered_jar_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(coordinates: list[str], folder: Path, _cache: Path) -> None:
        for coordinate in coordinates:
            pinned(folder, coordinate, b"not what was pinned")

    monkeypatch.setattr(jar_fetch, "fetch", fetched)
    with pytest.raises(DevstackError, match="not the pinned one"):
        jars.jars_folder(tmp_path)
    assert list((tmp_path / "jars").iterdir()) == []


def test_maven_is_asked_for_exactly_the_list() -> None:
    namespace = ElementTree.fromstring(jar_fetch._pom(COORDINATES, transitive=False))
    asked = [tuple(place.text for place in list(dependency)[:3]) for dependency in namespace.iter("dependency")]
    assert asked == [tuple(coordinates.split(":")) for coordinates in COORDINATES]
    assert len(list(namespace.iter("exclusion"))) == len(COORDINATES)


def test_ivy_is_asked_for_exactly_the_list() -> None:
    module = ElementTree.fromstring(jar_fetch._ivy_module(COORDINATES))
    asked = [(d.get("org"), d.get("name"), d.get("rev"), d.get("transitive")) for d in module.iter("dependency")]
    assert asked == [(*coordinates.split(":"), "false") for coordinates in COORDINATES]
    assert jar_fetch._ivy_jar().exists()


def test_java_can_read_the_trust_store_made_of_pythons_certificates(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        pytest.skip("this machine's Python names no certificate file")
    assert jar_fetch._trust_flags(store) == [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
    ]
    keytool = find_java().launcher.with_name("keytool")
    done = subprocess.run(
        [str(keytool), "-list", "-keystore", str(store), "-storetype", "JKS"],
        input="\n",
        capture_output=True,
        text=True,
    )
    assert f"contains {len(certificates)} entries" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("trustedCertEntry") == len(certificates)


def test_proxies_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert jar_fetch._proxy_flags() == []
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert jar_fetch._proxy_flags() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]
