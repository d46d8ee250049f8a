"""Fetching named jars by Maven where the machine has it, else by the Ivy inside pyspark's wheel, run on our own Java.

Both are asked for exactly the jars of a list, with nothing transitive, and both leave them in one flat folder as
`group.artifact-version.jar`. Which repository serves them is the tool's own configuration, never ours. What arrives is
verified by the caller.
"""

from __future__ import annotations

import importlib.util
import shutil
import ssl
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.java import find_java

_TIMEOUT_SECONDS = 900
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_JKS_MAGIC = 0xFEEDFEED
_JKS_VERSION = 2
_JKS_TRUSTED = 2
_JKS_DIGEST_BYTES = 20


def fetch(coordinates: Sequence[str], folder: Path, cache: Path) -> None:
    """Put the jars of `coordinates` (`group:artifact:version`) into `folder`; `cache` keeps Ivy's own files."""
    maven = shutil.which("mvn")
    if maven is not None:
        _by_maven(maven, coordinates, folder, transitive=False)
    else:
        _by_ivy(coordinates, folder, cache)


def resolve(roots: Sequence[str], folder: Path) -> list[str]:
    """Everything `roots` need to run, as coordinates; the jars themselves are left in `folder`. Needs Maven."""
    maven = shutil.which("mvn")
    if maven is None:
        raise DevstackError("resolving the jars anew needs Maven", hint="install Maven; the pinned list needs none")
    listing = folder / "resolved.txt"
    _by_maven(maven, roots, folder, transitive=True, goals=[f"{_PLUGIN}:list", f"-DoutputFile={listing}"])
    found = []
    for line in listing.read_text().splitlines():
        words = line.split()
        if words and words[0].count(":") == 4:  # group:artifact:type:version:scope; a classifier would make it five
            group, artifact, _, version, _ = words[0].split(":")
            found.append(f"{group}:{artifact}:{version}")
    if len(found) != len(list(folder.glob("*.jar"))):
        raise DevstackError("Maven listed other jars than it copied", listed=len(found), hint=listing.read_text())
    return found


def _by_maven(
    maven: str, coordinates: Sequence[str], folder: Path, *, transitive: bool, goals: Sequence[str] = ()
) -> None:
    with tempfile.TemporaryDirectory() as name:
        pom = Path(name) / "pom.xml"
        pom.write_text(_pom(coordinates, transitive=transitive))
        command = [maven, "-B", "-q", "-f", str(pom), f"{_PLUGIN}:copy-dependencies", *goals]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}", "-Dmdep.prependGroupId=true"]
        _run("Maven", command)


def _pom(coordinates: Sequence[str], *, transitive: bool) -> str:
    nothing = (
        ""
        if transitive
        else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    dependencies = ""
    for group, artifact, version in (coordinate.split(":") for coordinate in coordinates):
        place = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        dependencies += f"<dependency>{place}{nothing}</dependency>"
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>headrace</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )


def _by_ivy(coordinates: Sequence[str], folder: Path, cache: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        settings, module, trust = (Path(name) / file for file in ("settings.xml", "ivy.xml", "trust.jks"))
        settings.write_text(
            '<ivysettings><settings defaultResolver="public"/>'
            f"<caches defaultCacheDir={quoteattr(str(cache / 'ivy'))}/>"
            '<resolvers><ibiblio name="public" m2compatible="true"/></resolvers></ivysettings>'
        )
        module.write_text(_ivy_module(coordinates))
        command = [str(find_java().launcher), "-XX:+UseSerialGC", *_trust_flags(trust), *_proxy_flags()]
        command += ["-jar", str(_ivy_jar()), "-settings", str(settings), "-ivy", str(module), "-warn"]
        command += ["-retrieve", f"{folder}/[organisation].[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
        _run("Ivy", command)


def _ivy_module(coordinates: Sequence[str]) -> str:
    dependencies = ""
    for group, artifact, version in (coordinate.split(":") for coordinate in coordinates):
        place = f'org="{group}" name="{artifact}" rev="{version}"'
        dependencies += f'<dependency {place} transitive="false" conf="default-&gt;default"/>'
    return (
        '<ivy-module version="2.0"><info organisation="headrace" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for jar in Path(place).glob("jars/ivy-*.jar"):
            return jar
    raise DevstackError(
        "nothing here can fetch jars", hint="install Maven, or pip install 'headrace[spark]' for its Ivy"
    )


def _trust_flags(store: Path) -> list[str]:
    """Trust what this machine's Python trusts: a company's own authority is in its bundle, not in the wheel's Java.

    The store is in Java's own JKS format, written without the digest a password would check.
    """
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    parts = [struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(certificates))]
    made = struct.pack(">Q", int(time.time() * 1000))
    for number, certificate in enumerate(certificates):
        alias = str(number).encode()
        parts += [struct.pack(">IH", _JKS_TRUSTED, len(alias)), alias, made]
        parts += [struct.pack(">H", 5), b"X.509", struct.pack(">I", len(certificate)), certificate]
    store.write_bytes(b"".join(parts) + bytes(_JKS_DIGEST_BYTES))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]


def _proxy_flags() -> list[str]:
    """Java does not read the proxy variables every other tool reads."""
    flags = []
    for scheme, address in urllib.request.getproxies().items():
        parts = urlsplit(address if "//" in address else f"//{address}")
        if scheme in ("http", "https") and parts.hostname:
            flags.append(f"-D{scheme}.proxyHost={parts.hostname}")
            if parts.port:
                flags.append(f"-D{scheme}.proxyPort={parts.port}")
    return flags


def _run(tool: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise DevstackError(f"{tool} did not fetch the jars in {_TIMEOUT_SECONDS} seconds", hint="try again") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise DevstackError(f"{tool} did not fetch the jars", exit_code=done.returncode, hint=f"it said:\n{said}")
