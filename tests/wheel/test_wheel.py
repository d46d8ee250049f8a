"""What is installed: one top-level name, with every file that it needs, from a wheel that was built from the sdist.

Nothing is fetched: the wheel goes into an empty virtual environment that sees the packages of this one, but not what is
installed here in place.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow
import pytest

from headrace.sidecar import VERSION
from headrace.sidecar.devstack.postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
FOLDERS = ("engine", "views", "connectors", "sidecar")
SHOP = ROOT / "examples" / "shop"
URL = "postgresql://nobody@127.0.0.1:1/shop"


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, both archives, and a folder far from the sources to run in."""

    python: Path
    sdist: Path
    wheel: Path
    folder: Path

    def run(self, *words: str, ok: bool = True) -> str:
        """The command `headrace`, as it was installed."""
        return self.program(str(self.python.with_name("headrace")), *words, ok=ok)

    def program(self, *command: str, ok: bool = True, **more: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
        # numba would compile all kernels again for files that lie elsewhere
        environment |= {"WAREHOUSE_URL": URL, "NUMBA_DISABLE_JIT": "1", **more}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is ok, done.stderr + done.stdout
        return done.stdout


def call(command: Sequence[str | Path], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("wheel")
    source, run = base / "source", base / "run"
    source.mkdir()
    run.mkdir()
    no_caches = shutil.ignore_patterns("__pycache__")
    for name in (*FOLDERS, "headrace"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=no_caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    call([sys.executable, "-W", "ignore", "-c", build], source)
    (sdist,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(base / "unpacked", filter="data")
    (unpacked,) = (base / "unpacked").iterdir()
    call([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", base, unpacked], base)
    (wheel,) = base.glob("*.whl")
    venv.create(base / "venv", with_pip=False)
    python = base / "venv" / "bin" / "python"
    call([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], base)
    # the packages of this environment by their folder alone: what is installed in place is known by files that are not read
    (site,) = (base / "venv" / "lib").glob("*/site-packages")
    (site / "packages.pth").write_text(f"{Path(pyarrow.__file__).parents[1]}\n")
    return Installed(python, sdist, wheel, run)


def test_it_installs_one_name_and_all_of_it(installed: Installed) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    info = f"headrace-{VERSION}.dist-info"
    assert {n.split("/")[0] for n in names} == {"headrace", info}
    ours = {
        str(p.relative_to(ROOT))
        for f in FOLDERS
        for p in (ROOT / f).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert len(ours) > 400
    assert {f"headrace/{n}" for n in ours} <= set(names)
    assert {"headrace/py.typed", "headrace/__main__.py", "headrace/spark.py", f"{info}/licenses/LICENSE"} <= set(names)
    with tarfile.open(installed.sdist) as archive:
        kept = {n.partition("/")[2] for n in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "headrace/sidecar/devstack/jars.lock"} <= kept


def test_nothing_else_is_importable_by_it(installed: Installed) -> None:
    program = (
        "import importlib.util as u, headrace, sys; print(headrace.__file__); "
        f"print([n for n in {FOLDERS!r} if u.find_spec(n)]); print(headrace.__version__)"
    )
    where, others, version = installed.program(str(installed.python), "-c", program).splitlines()
    assert Path(where).is_relative_to(installed.python.parents[1])
    assert others == "[]"
    assert version == VERSION


def test_a_bare_name_is_refused_by_the_linter() -> None:
    """From the top of the repository it would import, as a second module."""
    lines = "".join(f"import {name}\nimport {name}.part\nfrom {name} import part\n" for name in FOLDERS)
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format", "concise"]
    command = [*ruff, "--stdin-filename", "tests/x.py", "-"]
    done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, check=False)
    assert done.stdout.count("TID251") == 3 * len(FOLDERS), done.stdout + done.stderr


def test_the_command_and_the_module_are_one(installed: Installed) -> None:
    assert "replay" in installed.run("--help")
    assert installed.run("--version") == installed.program(str(installed.python), "-m", "headrace", "--version")
    assert "--prefix" in installed.program(str(installed.python.with_name("headrace-publish")), "--help")


def test_the_example_is_valid_and_replays(installed: Installed) -> None:
    config = str(SHOP / "headrace.yaml")
    assert "revenue_by_customer" in installed.run("validate", "--config", config)
    lines = installed.run("replay", str(SHOP / "recording.jsonl"), "--config", config, "--json").splitlines()
    rows = [json.loads(line)["row"] for line in lines]
    assert {r["name"]: (r["orders"], r["revenue"]) for r in rows} == {"Blaise": (2, "106.25"), "Grace": (2, "20.50")}


def test_a_shell_gets_its_completion(installed: Installed) -> None:
    asked = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": "headrace rep", "COMP_CWORD": "1"}
    assert installed.program(str(installed.python.with_name("headrace")), **asked).split() == ["replay"]
    assert "--install-completion" in installed.run("--help")


def test_init_reflects_a_database(installed: Installed, database: str, postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("create table customers (id bigint primary key, name text not null, city text)")
    folder = installed.folder / "made"
    installed.run("init", "--from", database, "--folder", str(folder), "--name", "shop")
    assert (folder / "views" / "example.yaml").is_file()
    assert "valid" in installed.run("validate", "--config", str(folder / "headrace.yaml"))


@pytest.mark.servers
def test_the_embedded_stack_comes_up(installed: Installed) -> None:
    folder = str(installed.folder / "stack")
    try:
        told = json.loads(installed.run("dev", "up", "--folder", folder, "--detach", "--json"))
        assert told["postgres"]
        assert json.loads(installed.run("dev", "status", "--folder", folder, "--json"))["ready"]
    finally:
        installed.run("dev", "down", "--folder", folder)
