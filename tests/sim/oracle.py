"""What must hold of everything that a reader of the sinks sees, at every moment: the judge of the simulator.

Always: it knows only what was published, the naive answers, and what was done to the sidecars.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any

import orjson

from headrace.connectors.commit_place import KINDS, place_of
from headrace.connectors.kafka.frontier_record import FrontierRecord, decode
from headrace.connectors.sink import Frontier
from tests.sim.broker import Broker, Record
from tests.sim.database import Written
from tests.sim.shop import OVER, Shop, State, answers
from tests.sim.variants import view_of

Absent = frozenset[tuple[str, int]]
NONE: Absent = frozenset()
Told = tuple[str, int]
"""A source and the LSN of a commit."""


class Wrong(Exception):
    """A promise is broken."""


class Judge:
    """Follows what each sink publishes. `forgiven`: sinks that were set back to an earlier state may begin a new incarnation.
    `unsure`: which rows (table, id) nothing that was published need have told of where the sources stand so: all that may be;
    `causes`: each says whether a view must be marked where the sources stand so, though SQL answers; with None: whether it
    may be anywhere; `standing`: the views of each sink that are. `definition`: what the one is called that rows with a
    fingerprint are of, `definitions`: all of a view (of most there is one, its own), `more`: what SQL answers to them; `seen`
    is told what each state that a reader sees is of."""

    def __init__(self, shops: Mapping[str, Shop]) -> None:
        self.shops = shops
        self.published: dict[str, Frontier] = {}
        self.stands: dict[str, set[tuple[int, ...]]] = {}
        self.meaning: dict[int, tuple[int, ...]] = {}
        self.forgiven: set[str] = set()
        self.frontiers = self.within = 0
        self.unsure: Callable[[tuple[int, ...]], Iterable[Absent]] = lambda _: (NONE,)
        self.causes: list[Callable[[str, tuple[int, ...] | None], bool]] = []
        self.standing: dict[str, set[str]] = {}
        self.definition: Callable[[str, str], str] = lambda view, _: view
        self.definitions: Callable[[str], Iterable[str]] = lambda view: (view,)
        self.more: Callable[[State], dict[str, Counter[Any] | None]] = lambda _: {}
        self.seen: Callable[[str, Frontier, Mapping[str, str], Iterable[str]], None] = lambda *_: None
        self._known: dict[tuple[tuple[int, ...], Absent], dict[str, Counter[Any] | None]] = {}
        self._absent: dict[str, set[Absent]] = {}
        self._shown: dict[int, set[Absent]] = {}
        self._emptied = False

    def expected(self, at: tuple[int, ...], absent: Absent = NONE) -> dict[str, Counter[Any] | None]:
        """The naive answers at a prefix of each source's commits, by their last LSNs, without the rows that are `absent`."""
        if (at, absent) not in self._known:
            whole: State = {}
            for (name, shop), lsn in zip(self.shops.items(), at, strict=True):
                if lsn >= 0 and lsn not in shop.states:
                    raise Wrong(f"no commit of {name} stands at LSN {lsn}")
                whole |= shop.states.get(lsn, {})
            there = lacking(whole, absent)
            self._known[at, absent] = answers(there) | self.more(there)
        return self._known[at, absent]

    def state(
        self, sink: str, frontier: Frontier, rows: Mapping[str, Counter[Any]], marked: Iterable[str],
        filled: Mapping[str, str],
    ) -> None:  # fmt: skip
        """A reader of `sink` sees this. `filled`: by view, the fingerprint that the sink tells of its rows. Raises Wrong."""
        self.frontiers += 1
        self._advances(sink, frontier)
        names = {view: self.definition(view, fingerprint) for view, fingerprint in filled.items()}
        self.seen(sink, frontier, names, marked)
        tried = [
            ((at, absent), *self._wrong(sink, frontier, rows, names, sorted(marked), (at, absent)))
            for at in self._meant(frontier)
            for absent in self.unsure(at)
        ]
        fits = {meant for meant, wrong, _ in tried if not wrong}
        if not fits:
            raise Wrong(tried[0][1])
        self.stands[sink] = {at for at, _ in fits}
        self.standing[sink] = next(standing for _, wrong, standing in tried if not wrong)
        self._comes(sink, frontier, {absent for _, absent in fits})

    def transaction(
        self, sink: str, view: str, fingerprint: str, told: Told, before: int | None, rows: Callable[[], Counter[Any]]
    ) -> None:
        """The records of a sink that tells each transaction, up to one of a source before the frontier's last, of a view that
        reads that source alone: they are SQL's answer there, and where the records before are of `before`, no transaction
        between changed anything, or SQL fails there. Raises Wrong."""
        source, lsn = told
        shop, name = self.shops.get(source), self.definition(view, fingerprint)
        if shop is None or not OVER.get(view, {""}) <= shop.tables.keys() or shop.rowless or lsn not in shop.states:
            return
        found, wanted = rows(), self._answers(source, lsn, name)
        self.within += 1
        if found not in wanted:
            raise Wrong(f"{sink}: {view} has {dict(found)} within a write, at {source}'s {lsn}, not {wanted}")
        between = [other for other in shop.order if before is not None and before < other < lsn]
        same = [*wanted, *(self._answers(source, before, name) if before in shop.states else ())]
        # Where SQL fails the view is in error, and tells nothing.
        hidden = [o for o in between if not any(a is None or a in same for a in self._answers(source, o, name))]
        if hidden:
            raise Wrong(f"{sink}: {view} does not tell of {hidden} by itself, between {before} and {lsn} of {source}")

    def _answers(self, source: str, lsn: int, name: str) -> list[Counter[Any] | None]:
        """What a view may be at a commit of the one source that it reads."""
        at = tuple(lsn if n == source else -1 for n in self.shops)
        return [self.expected(at, absent)[name] for absent in self.unsure(at)]

    def _comes(self, sink: str, frontier: Frontier, fits: set[Absent]) -> None:
        """What a sink has been told of stays, and an epoch shows the same rows in each sink."""
        before = self._absent.get(sink, fits)
        self._absent[sink] = {here for here in fits if any(here <= then for then in before)}
        self._shown[frontier.epoch] = self._shown.get(frontier.epoch, fits) & fits
        if not self._absent[sink] or not self._shown[frontier.epoch]:
            raise Wrong(f"{sink}: rows that no event told of come and go at {frontier}: {before} {fits}")

    def _meant(self, frontier: Frontier) -> Iterable[tuple[int, ...]]:
        """What a frontier may stand for: a later snapshot that found no row has no LSN to move it by."""
        last = self._at(frontier)
        of_each = ((at, *(r for r in s.rowless if r > at)) for s, at in zip(self.shops.values(), last, strict=True))
        return product(*of_each)

    def _wrong(
        self, sink: str, frontier: Frontier, rows: Mapping[str, Counter[Any]], names: Mapping[str, str], marked: list[str],
        meant: tuple[tuple[int, ...], Absent],
    ) -> tuple[str, set[str]]:  # fmt: skip
        """What is wrong with this where it is `meant`, "" for nothing, and which views stand still. Raises Wrong."""
        at, wanted = meant[0], self.expected(*meant)
        for view, found in rows.items():
            right = wanted[names[view]] if view in names else None
            if right is None or view in marked:
                if view not in names and not found:
                    continue  # it was never given
                if never := self._never(sink, view, found, at):
                    return never, set()
            elif found != right:
                lacks, more = dict(right - found), dict(found - right)
                return f"{sink}: {view} lacks {lacks} and has {more} too much at {frontier}", set()
        wrong = {name for name, right in wanted.items() if right is None}
        failing = {view_of(name) for name in wrong}
        must = (wrong & failing) | {view for view in rows if view not in names or names[view] in wrong}
        must |= {view for view in rows if any(stands(view, at) for stands in self.causes)}
        may = failing | {view_of(name) for name in wanted if any(stands(view_of(name), None) for stands in self.causes)}
        if must <= set(marked) <= may:
            return "", set(marked) - failing
        return f"{sink}: {marked} are marked and {must} must be at {frontier}", set()

    def _at(self, frontier: Frontier) -> tuple[int, ...]:
        return tuple(frontier.sources[n].place.order if n in frontier.sources else -1 for n in self.shops)

    def _never(self, sink: str, view: str, found: Counter[Any], at: tuple[int, ...]) -> str:
        """A view in error keeps the rows that it had at some prefix before of its sources: what is wrong with that. It is told,
        not raised: what a frontier stands for may be several states (`_meant`), and rows that the view never had before the
        first of these, it may have had before another."""
        before = []
        for shop, last in zip(self.shops.values(), at, strict=True):
            reads = shop.tables.keys() & OVER[view]
            before.append([last, *(lsn for lsn in (-1, *shop.order) if lsn < last and reads)])
        if any(
            self.expected(then, without)[name] == found
            for then in product(*before)
            for without in self.unsure(then)
            for name in self.definitions(view)
        ):
            return ""
        return f"{sink}: {view} is in error at {at} and has rows that it never had: {dict(found)}"

    def _advances(self, sink: str, frontier: Frontier) -> None:
        before = self.published.get(sink)
        self.published[sink] = frontier
        if before is not None:
            if frontier.incarnation != before.incarnation and sink not in self.forgiven:
                raise Wrong(f"{sink}: a new incarnation, but it never went back: {before} {frontier}")
            if frontier.incarnation == before.incarnation:
                self._compare(sink, before, frontier)
        at = self._at(frontier)
        if self.meaning.setdefault(frontier.epoch, at) != at:
            raise Wrong(f"{sink}: epoch {frontier.epoch} is {at} and was {self.meaning[frontier.epoch]}")

    def _compare(self, sink: str, before: Frontier, after: Frontier) -> None:
        if after.epoch < before.epoch:
            raise Wrong(f"{sink}: the frontier went back from epoch {before.epoch} to {after.epoch}")
        for name, was in before.sources.items():
            now = after.sources.get(name)
            if now is None or now.place < was.place:
                raise Wrong(f"{sink}: {name} went back from {was.place} to {now and now.place}")

    def restored(self, sink: str, to: Frontier | None) -> None:
        """A sink was set back to an earlier state: what it shows now may be from before, and a new incarnation may begin."""
        self.published.pop(sink, None)
        self._absent.pop(sink, None)
        self.forgiven.add(sink)
        self._forget(to)

    def emptied(self, restored: Frontier | None) -> None:
        """The state folder was; `restored`: where the sink stands that may have been set back."""
        self._emptied = True
        self._forget(restored)

    def _forget(self, restored: Frontier | None) -> None:
        """Once both have happened, epochs that no sink holds are known to nobody, and may be minted again."""
        held = max(f.epoch if f else 0 for f in (restored, *self.published.values()))
        if self._emptied and self.forgiven:
            self.meaning = {epoch: at for epoch, at in self.meaning.items() if epoch <= held}
            self._shown = {epoch: absent for epoch, absent in self._shown.items() if epoch <= held}

    def database(self, sink: str, written: Written) -> None:
        """A transaction of the database."""
        rows = {n: +c for n, c in written.rows.items()}
        self.state(sink, written.frontier, rows, written.errors, written.filled)


def lacking(state: State, absent: Absent) -> State:
    """The tables without these rows."""
    if not absent:
        return state
    return {t: Counter({r: n for r, n in rows.items() if (t, r[0]) not in absent}) for t, rows in state.items()}


def positions_in(manifest: bytes | None) -> dict[str, dict[str, int]]:
    """Where all sources go on from a manifest, by topic and partition."""
    sources = orjson.loads(manifest)["sources"].values() if manifest else ()
    return {topic: partitions for source in sources for topic, partitions in source["positions"].items()}


def unheld(kept: bytes | None, positions: Mapping[str, Mapping[int, int]]) -> str:
    """What is wrong where these positions are called safe and a power cut would leave this manifest; "" for nothing."""
    held = positions_in(kept)
    for topic, partitions in positions.items():
        for partition, offset in partitions.items():
            if held.get(topic, {}).get(str(partition), -1) < offset:
                return f"{topic} is committed at {offset} before a manifest that has it is on disk"
    return ""


class KafkaReader:
    """A `read_committed` reader of a Kafka sink's topics that stops where each frontier record says. `keyless`: whether a view
    is, with what fingerprint; `each`: by the sink's generation, whether it asks for each transaction."""

    def __init__(
        self, broker: Broker, judge: Judge, sink: str, prefix: str, keyless: Callable[[str, str], bool]
    ) -> None:
        self.broker, self.judge, self.sink, self.prefix, self.keyless = broker, judge, sink, prefix, keyless
        self.each: dict[int, bool] = {}
        self._at = 0
        self._places: dict[str, int] = {}
        self._live: dict[str, dict[bytes, Any]] = {}
        self._writes = 0
        self._waiting: deque[FrontierRecord] = deque()

    def look(self) -> None:
        """Judge every frontier record that came since. Raises Wrong."""
        topic = self.broker.topics.get(f"{self.prefix}frontier")
        if topic is None:
            return
        records, self._at = topic.partitions[0].read(self._at, 1 << 30, committed=True)
        self._waiting += [decode(orjson.loads(r.value)) for r in records if r.value is not None]
        while self._waiting and self._is_stable(self._waiting[0]):
            self._judge(self._waiting.popleft())

    def _is_stable(self, standing: FrontierRecord) -> bool:
        """Whether all markers stand: a commit is answered before."""
        return all(self.broker.partition((t, 0)).stable >= ends[0] for t, ends in standing.ends.items())

    def _judge(self, standing: FrontierRecord) -> None:
        if standing.writes != self._writes + 1:
            raise Wrong(f"{self.sink}: write {standing.writes} follows write {self._writes}")
        self._writes = standing.writes
        for topic, ends in standing.ends.items():
            self._read(topic, ends[0], standing)
        if standing.frontier is None:
            return
        filled = {t.removeprefix(self.prefix): f for t, f in standing.views.items() if f is not None}
        rows = {name: self._rows(name, fingerprint) for name, fingerprint in filled.items()}
        marked = [t.removeprefix(self.prefix) for t in standing.errors]
        self.judge.state(self.sink, standing.frontier, rows, marked, filled)

    def _rows(self, name: str, fingerprint: str) -> Counter[Any]:
        """What a view's topic holds now."""
        found = Counter[Any]()
        for value in self._live.get(f"{self.prefix}{name}", {}).values():
            row, count = (value["row"], value["count"]) if self.keyless(name, fingerprint) else (value, 1)
            found[tuple(row.values())] += count
        return found

    def _read(self, topic: str, end: int, standing: FrontierRecord) -> None:
        live = self._live.setdefault(topic, {})
        partition = self.broker.partition((topic, 0))
        records, at = partition.read(self._places.get(topic, 0), 1 << 30, committed=True)
        taken = [r for r in records if r.offset < end]
        self._places[topic] = min(at, end)
        fingerprint, last = standing.views.get(topic), standing.frontier.epoch if standing.frontier else 0
        before: Told | None = None
        for i, record in enumerate(taken, 1):
            self._take(live, record)
            told, later = dict(record.headers or ()), dict(taken[i].headers or ()) if i < len(taken) else {}
            place = {name: value.decode() for name, value in told.items() if name in KINDS}
            ends = int(told["epoch"]) < last and later.get("epoch") != told["epoch"]
            if ends and place and fingerprint is not None and topic not in standing.errors:
                name, here = topic.removeprefix(self.prefix), (told["source"].decode(), place_of(place).order)
                each = self.each.get(standing.generation, False) and before is not None and before[0] == here[0]
                rows = partial(self._rows, name, fingerprint)
                since = before[1] if each and before is not None else None
                self.judge.transaction(self.sink, name, fingerprint, here, since, rows)
                before = here

    @staticmethod
    def _take(live: dict[bytes, Any], record: Record) -> None:
        assert record.key is not None, "every record of a view has a key"
        if record.value is None:
            live.pop(record.key, None)
        else:
            live[record.key] = orjson.loads(record.value)
