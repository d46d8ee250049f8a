"""`python -m tests.crash.mutate`: a state folder whose files are cut, flipped, deleted, doubled and swapped.

Two ways. *Bytes*: every truncation and every flipped bit of log, manifest and batches, read as a start reads them. *Whole*:
random mutations of the folder, then a whole sidecar in this process over topics and two sinks in memory, which stand at
different epochs. Always: the outcome is the old state, the new state or a named error; both sinks hold what SQL answers
at every frontier that they are given.
"""

from __future__ import annotations

import argparse
import copy
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.batch import Layout
from headrace.engine.errors import HeadraceError
from headrace.sidecar.epochs.reclock import ReclockLog
from headrace.sidecar.state.batch_store import load_batches
from headrace.sidecar.state.checkpoint import Manifest, read_manifest
from headrace.sidecar.state.generation import Generation, carry_over, numbers, open_generation, take_generation
from headrace.sidecar.wiring import build
from tests.crash.counts import write
from tests.doubles.memory import MemorySink, MemoryStore
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, VISITS, Little, answers

NAMED = {"state", "checkpoint", "reclock", "batch"}
"""Codes of errors that are about the state folder."""
SINKS = ("s", "t")


class Two(Little):
    """The little sidecar with two sinks in memory. `stores`: by name."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch)
        self.stores = {name: MemoryStore(keep_history=True) for name in SINKS}
        patch.setattr(build, "make_sink", lambda _s, c, *_: MemorySink(c.name, self.stores[c.name]))
        (folder / "views" / "v.yaml").write_text(VIEWS.replace("sinks: [s]", "sinks: [s, t]"))

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        [one] = body["sinks"]
        return body | {"sinks": [one, one | {"name": "t"}]}

    def wrong(self) -> list[str]:
        """Where a sink ever held something else than SQL answers at its frontier since the histories were emptied."""
        found = []
        for name, store in self.stores.items():
            for frontier, rows in [*store.history, (store.frontier, store.rows)]:
                if frontier is not None and rows != answers(self.states[frontier.sources["shop"].place.order]):
                    found.append(f"sink {name} at epoch {frontier.epoch}")
        return found


class Case:
    """A state folder made by a run that was killed, and everything around it, to start from again and again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.patch = pytest.MonkeyPatch()
        self.shop = Two(folder / "run", self.patch)
        shop, draw = self.shop, self.draw
        shop.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1), (2, 1)]})
        for every_turn, rounds in ((True, 3), (False, 4)):
            shop.every_turn = every_turn
            shop.start()
            for turn in range(rounds):
                for _ in range(draw.randrange(1, 4)):
                    shop.random(draw)
                shop.show_all()
                shop.turn()
                if not every_turn and turn == 1:
                    behind = copy.deepcopy(shop.stores["t"])
            shop.end()
        self.stores = {"s": copy.deepcopy(shop.stores["s"]), "t": behind}
        self.state = folder / "kept"
        shutil.copytree(shop.folder / "state", self.state)
        shop.random(draw)
        shop.show_all()
        shop.every_turn = True
        last = max(shop.states)
        self.answer = answers(shop.states[last])

    def restore(self) -> Path:
        """Put everything back as it was at the kill; the state folder."""
        state = self.shop.folder / "state"
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(self.state, state)
        for name in SINKS:
            self.shop.stores[name] = copy.deepcopy(self.stores[name])
            self.shop.stores[name].history.clear()
        return state

    def outcome(self) -> str:
        """Start on the folder as it is now, and run to the end: "recovered", the named error, or what is wrong."""
        shop = self.shop
        try:
            shop.start()
            shop.turn(4 if shop.batch > 100 else 40)
        except HeadraceError as error:
            return error.code if error.code in NAMED else f"WRONG: {error}"
        except Exception as error:
            return f"WRONG: bare {type(error).__name__}: {error}"
        finally:
            if shop.running is not None:
                with suppress(HeadraceError):
                    shop.end()
            shop.running = None
        wrong = [f"{w} is wrong" for w in shop.wrong()]
        wrong += [f"sink {n} lacks the end" for n in SINKS if shop.stores[n].rows != self.answer]
        return "WRONG: " + ", ".join(wrong) if wrong else "recovered"

    def close(self) -> None:
        self.patch.undo()


def files_of(state: Path) -> list[Path]:
    """Every file, in one order."""
    return sorted(p for p in state.rglob("*") if p.is_file())


def mutate(state: Path, draw: random.Random) -> str:
    """One random mutation of a state folder; what it was."""
    files = files_of(state)
    one, two = draw.choice(files), draw.choice(files)
    data = bytearray(one.read_bytes())
    kind = draw.choice(
        ("cut", "flip", "flips", "zeros", "delete", "double", "swap", "junk", "lines", "folder", "extra")
    )
    if kind == "cut":
        one.write_bytes(data[: draw.randrange(len(data) + 1)])
    elif kind in ("flip", "flips") and data:
        for _ in range(1 if kind == "flip" else draw.randrange(2, 20)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        one.write_bytes(data)
    elif kind == "zeros":
        at = draw.randrange(len(data) + 1)
        one.write_bytes(data[:at] + bytes(len(data) - at))
    elif kind == "delete":
        one.unlink()
    elif kind == "double":
        two.with_name(one.name).write_bytes(data)
    elif kind == "swap":
        here, there = one.read_bytes(), two.read_bytes()
        one.write_bytes(there)
        two.write_bytes(here)
    elif kind == "junk":
        one.write_bytes(draw.randbytes(draw.randrange(200)))
    elif kind == "lines":
        lines = bytes(data).splitlines(keepends=True)
        draw.shuffle(lines)
        one.write_bytes(b"".join(lines[: draw.randrange(len(lines) + 1)]))
    elif kind == "folder":
        shutil.rmtree(draw.choice([p for p in state.rglob("*") if p.is_dir()]))
        return f"{kind} deleted"
    elif kind == "extra":
        (one.parent / draw.choice(("000009", "junk", "manifest.new", f"{'0' * 40}.new"))).write_bytes(b"x")
    return f"{kind} {one.relative_to(state)}, {two.name}"


def whole(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Random mutations, each with a whole run: outcomes, and what was wrong with the seed of each."""
    told: list[str] = []
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        case = Case(Path(folder), seed)
        try:
            for number in range(count):
                state = case.restore()
                draw = random.Random(f"{seed}/{number}")
                case.shop.batch = draw.choice((1, 3, 1 << 16))
                done = [mutate(state, draw) for _ in range(draw.choice((1, 1, 1, 2))) if files_of(state)]
                outcome = case.outcome()
                outcomes[outcome.partition(":")[0]] += 1
                if outcome.startswith("WRONG"):
                    told.append(f"seed {seed}/{number}, {'; '.join(done)}: {outcome}")
        finally:
            case.close()
    return outcomes, told


def mutants(data: bytes, step: int, begin: int) -> Iterator[bytes]:
    """`data` cut at every byte, and with every bit flipped; every `step`th of them."""
    for at in range(begin % step, len(data) * 9, step):
        byte, bit = divmod(at, 9)
        yield data[:byte] if bit == 8 else data[:byte] + bytes((data[byte] ^ 1 << bit,)) + data[byte + 1 :]


def every_byte(step: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Every `step`th truncation and flipped bit of the last generation's files: outcomes, and what was wrong."""
    outcomes: Counter[str] = Counter()
    told: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        case = Case(Path(folder), seed)
        case.close()
        layouts = _layouts(case)
        last = open_generation(case.state, numbers(case.state)[-1])
        manifest = read_manifest(last.manifest)
        assert manifest is not None
        judges: dict[Path, Callable[[bytes], str]] = {
            last.log: _log_judge(last.log, Path(folder) / "log"),
            last.manifest: _manifest_judge(case.state, Path(folder) / "copy", manifest, layouts),
        }
        for files in manifest.arrangements.values():
            for file in files:
                judges[last.batches / file.name] = _batch_judge(last, manifest, layouts, last.batches / file.name)
        for number, (path, judge) in enumerate(judges.items()):
            for mutant in mutants(path.read_bytes(), step, seed + number):
                try:
                    outcome = judge(mutant)
                except HeadraceError as error:
                    outcome = error.code if error.code in NAMED else f"WRONG: {error}"
                except Exception as error:
                    outcome = f"WRONG: bare {type(error).__name__}: {error}"
                outcomes[outcome.partition(":")[0]] += 1
                if outcome.startswith("WRONG"):
                    told.append(f"seed {seed}, {path.name}: {outcome}")
    return outcomes, told


def _layouts(case: Case) -> dict[str, Layout]:
    with _started(case) as shop:
        assert shop.running is not None
        return {n: a.layout for n, a in shop.running.runtime.parts.flow.registry.arrangements().items()}


@contextmanager
def _started(case: Case) -> Iterator[Two]:
    case.restore()
    patch = pytest.MonkeyPatch()
    try:
        fresh = Two(case.shop.folder, patch)
        fresh.log, fresh.stores = case.shop.log, case.shop.stores
        fresh.start()
        yield fresh
        fresh.end()
    finally:
        patch.undo()


def _log_judge(path: Path, scratch: Path) -> Callable[[bytes], str]:
    whole_log = ReclockLog(path)
    known = [b.line() for b in whole_log.bindings]
    whole_log.close()

    def judge(mutant: bytes) -> str:
        scratch.write_bytes(mutant)
        log = ReclockLog(scratch)
        found = [b.line() for b in log.bindings]
        log.close()
        if found != known[: len(found)] or scratch.read_bytes() != b"".join(known)[: scratch.stat().st_size]:
            return "WRONG: other bindings"
        return "new state" if found == known else "old state"

    return judge


def _manifest_judge(state: Path, scratch: Path, known: Manifest, layouts: dict[str, Layout]) -> Callable[[bytes], str]:
    shutil.copytree(state, scratch)
    previous = open_generation(scratch, numbers(scratch)[-1])

    def judge(mutant: bytes) -> str:
        previous.manifest.write_bytes(mutant)
        fresh, _ = take_generation(scratch)
        try:
            carry_over(fresh, previous)
            found = read_manifest(fresh.manifest)
            assert found is not None
            load_batches(found.arrangements, fresh.batches, layouts)
            return "new state" if found == known else "WRONG: another manifest"
        finally:
            shutil.rmtree(fresh.folder)

    return judge


def _batch_judge(
    last: Generation, manifest: Manifest, layouts: dict[str, Layout], path: Path
) -> Callable[[bytes], str]:
    good = path.read_bytes()

    def judge(mutant: bytes) -> str:
        path.unlink()
        path.write_bytes(mutant)
        try:
            load_batches(manifest.arrangements, last.batches, layouts)
        finally:
            path.write_bytes(good)
        return "new state" if mutant == good else "WRONG: a batch that was altered"

    return judge


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.mutate", description=__doc__)
    parser.add_argument("--runs", type=int, default=1500, help="mutations that are followed by a whole run")
    parser.add_argument("--step", type=int, default=1, help="of the mutations of bytes, every so many")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    outcomes, told = every_byte(asked.step, asked.seed)
    print(f"bytes: {dict(outcomes)}", file=sys.stderr)
    runs, wrong = whole(asked.runs, asked.seed)
    print(f"whole: {dict(runs)}", file=sys.stderr)
    for one in [*told, *wrong][:40]:
        print(one, file=sys.stderr)
    facts = {"mutations": outcomes.total() + runs.total(), "bytes": outcomes.total(), "runs": runs.total(),
             "old_or_new": outcomes["old state"] + outcomes["new state"] + runs["recovered"],
             "named": sum((outcomes + runs)[code] for code in NAMED), "wrong": (outcomes + runs)["WRONG"],
             "seconds": round(time.monotonic() - began)}  # fmt: skip
    write("mutate", {"seed": asked.seed, **facts})
    print(
        f"mutate: {'failed' if facts['wrong'] else 'ok'} seed={asked.seed} "
        + " ".join(f"{k}={v}" for k, v in facts.items())
    )
    sys.exit(1 if facts["wrong"] else 0)


if __name__ == "__main__":
    main()
