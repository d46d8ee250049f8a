"""Spine: a collection's history as batches of geometrically growing size, merged a little at each insert.

Always: the batches tile [minimum, upper) without gap or overlap; answers are faithful at times ≥ `since`; the work of
an insert is bounded by its size times the logarithm of the whole. Small batches are merged at once, several together;
large ones two by two with fuel. Single writer: the dataflow that owns the arrangement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.engine.batch.batch import Batch
from headrace.engine.batch.keys import Keys, UInt64s
from headrace.engine.batch.merger import Merger
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.errors import HeadraceError, InvariantBroken
from headrace.engine.lattice import CLOSED, MINIMUM, Frontier
from headrace.engine.trace.lookup import (
    EARLIEST,
    LATEST,
    Ends,
    Matches,
    View,
    content,
    content_in_pieces,
    first_enough,
    first_live,
    gather,
    sifted,
    window,
)
from headrace.engine.trace.small import merge_small

SMALL = 1024
"""Batches of fewer updates than this are merged at once, several together: two by two they cost more calls than work."""

_FAN = 8
"""So many small neighbours of one magnitude become one."""

_MANY = 12
"""So many small batches, of whatever sizes, `exert` makes one; fewer cost a lookup less than merging them would."""

_TINY = 32
"""Below this size, sizes do not count: the overhead of a merge does."""

_FUEL_AN_UPDATE = 8
"""Updates merged for each one inserted, for each merge under way; 4 would just keep up with the levels' growth."""

_FUEL_AN_INSERT = 256

WORTH = 2048
"""Less fuel than this is saved up: beginning and going on with merges costs more than they do."""

_LOPSIDED = 8
"""`exert` leaves a batch alone beside one so many times its size."""


_MUCH_IN_VAIN = 1 << 13
"""Reading fewer cancelled updates than this costs less than a merge's overhead."""

_WHATEVER = 1 << 62
"""Fuel for as long as it takes."""


class NotFaithful(HeadraceError):
    """A question about a time before `since`, or one not yet complete."""

    code = "since"


def where_it_is(batch: Batch) -> Batch:
    """The batch, in memory as it was made."""
    return batch


class Spine:
    """The trace of one arrangement, sorted by `layout`.

    `place`: gives each batch that is to stand the place where it is to lie, for as long as it does; it is the same batch.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.place: Callable[[Batch], Batch] = where_it_is
        self._batches: list[Batch] = []
        self._mergers: dict[int, Merger] = {}
        self._since = MINIMUM
        self._physical = CLOSED
        self._upper = MINIMUM
        self._in_vain = 0
        self._saved = 0
        self._due = False
        self._view: View | None = None
        self._appended = 0
        """Batches that came since small ones were last merged."""

    @property
    def upper(self) -> Frontier:
        """The times not yet inserted."""
        return self._upper

    @property
    def since(self) -> Frontier:
        """Questions are answered faithfully at times ≥ this."""
        return self._since

    @property
    def merging(self) -> int:
        """How many merges are under way."""
        return len(self._mergers)

    def __len__(self) -> int:
        return sum(len(b) for b in self._batches)

    def __bool__(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        """Memory of all batches, in bytes; room of merges under way apart."""
        return sum(b.nbytes for b in self._batches)

    def batches(self) -> tuple[Batch, ...]:
        """The immutable batches that tile [minimum, upper), earliest first; merges under way appear as their inputs."""
        return tuple(self._batches)

    def insert(self, batch: Batch) -> None:
        """Append the batch that begins where the last one ended, and do a share of the merging.

        Raises InvariantBroken for a gap or another layout. An empty batch only moves `upper`.
        """
        if batch.layout is not self.layout and batch.layout != self.layout:
            raise InvariantBroken("a batch of another layout", batch=batch.layout.key, spine=self.layout.key)
        lower = batch.description.lower
        if lower is not self._upper and lower != self._upper:
            raise InvariantBroken("batches do not meet", upper=self._upper, lower=lower)
        self._upper = batch.description.upper
        last = len(self._batches) - 1
        if not len(batch) and last >= 0:
            # Merging with nothing is a matter of the description alone; a merge under way keeps its own.
            self._widen(last, batch.description.upper)
            return
        if len(batch) >= SMALL:
            self._merge_small(at_least=2)
            batch = self.place(batch)
        self._batches.append(batch)
        if self._view is not None:
            self._view.append(batch)
        self._appended += 1
        if self._appended >= _FAN:
            self._merge_small(at_least=_FAN)
        self._due = self._due or len(self._batches[-1]) >= SMALL
        self._saved += len(batch) * _FUEL_AN_UPDATE + _FUEL_AN_INSERT
        if self._saved >= WORTH:
            self._work(self._saved)
            self._saved = 0

    def exert(self, fuel: int) -> int:
        """Merge for about `fuel` updates, beyond what inserts do; returns the fuel left.

        It stops where merging would cost more than it saves: at a few small batches, and at batches an eighth of the
        one before or smaller.
        """
        fuel -= self._work(fuel)
        if len(self._batches) >= _MANY:
            self._merge_small(at_least=_MANY, graded=False)
        while fuel > 0 and not self._mergers:
            sizes = [len(batch) for batch in self._batches]
            at = len(sizes) - 2
            while at >= 0 and (sizes[at + 1] < SMALL or sizes[at] >= _LOPSIDED * sizes[at + 1]):
                at -= 1
            if at < 0 or not self._begin(at):
                break
            fuel -= self._work(fuel)
        return fuel

    def advance(self, since: Frontier, physical: Frontier | None = None) -> None:
        """Allow times to be advanced to `since` at later merges, and merges of batches whose upper is ≤ `physical`.

        Frontiers never go back: an earlier one changes nothing. Without `physical` all batches may be merged.
        """
        self._since = self._since.join(since) if not since.closed else CLOSED
        if physical is not None:
            self._physical = physical
            self._due = True

    def gather(self, keys: Keys, since: int | None = None, until: int | None = None, most: int = LATEST) -> Matches:
        """All updates of the keys, which may repeat and need no order.

        `since`: times are advanced to it, and rows that cancel by then are gone; `until`: updates at epochs ≥ it are
        left out. The payload is fetched by `Matches.rows`. Raises DiffOverflow, and TooMany, with nothing read, where
        there are more than `most` updates of these keys, at whatever times.
        """
        return gather(self.view, keys, EARLIEST if since is None else since, LATEST if until is None else until, most)

    def sifted(self, keys: Keys) -> Int64s | None:
        """The positions of those of many keys that may be here, ascending; None where most may be."""
        return sifted(self.view, keys)

    def first_live(self, keys: Keys, bounds: UInt64s, since: int, *, backward: bool) -> Ends:
        """Of each key the updates of its first rows in the layout's order, up to one that is live throughout.

        That is: live at `since` and after each later update; all rows of its order lane come with it. `bounds`: an order
        lane a key, below which no row is live at `since` or later. `backward`: the last rows, and none above `bounds`.
        Times are advanced to `since`; rows that cancel by then are passed over. Raises DiffOverflow.
        """
        found = first_live(self.view, keys, bounds, since, backward=backward)
        self.read_in_vain(found.visited - len(found))
        return found

    def first_enough(
        self, keys: Keys, needs: Int64s, since: int, *, backward: bool, exact: bool
    ) -> tuple[Ends, Int64s]:
        """Of each key the updates of its first rows in the layout's order, until `needs` copies are live throughout.

        Also: how many copies each key lacks. All rows of the last one's order lane come with it, unless `exact` says
        that rows of one order lane may stand by their fingerprints. The rest as for `first_live`.
        """
        found, lacking = first_enough(self.view, keys, needs, since, backward=backward, exact=exact)
        self.read_in_vain(found.visited - len(found))
        return found, lacking

    def read_in_vain(self, count: int) -> None:
        """So many updates were passed over that cancelled."""
        # They are passed over again and again until a merge drops them: reading them without result as often as a merge of
        # everything would read them pays for that merge.
        self._in_vain += count
        if self._in_vain > max(len(self), _MUCH_IN_VAIN):
            self._in_vain = 0
            self._condense()

    def snapshot(self, as_of: int) -> Updates:
        """The collection at `as_of`: every row once with its multiplicity, times all `as_of`.

        Raises NotFaithful before `since` and at epochs that are not complete.
        """
        self._check_known(as_of)
        return content(self.layout, self._batches, as_of)

    def snapshot_in_pieces(self, as_of: int, size: int) -> Iterator[Updates]:
        """As `snapshot`, about `size` updates at a time, in no order; to be taken before anything is inserted or merged.

        Raises NotFaithful as `snapshot` does, at once.
        """
        self._check_known(as_of)
        return content_in_pieces(self.view, as_of, size)

    def _check_known(self, as_of: int) -> None:
        if self._since.closed or as_of < self._since.epoch:
            raise NotFaithful("the past was compacted", as_of=as_of, since=self._since, hint="ask at since or later")
        if not self._upper.closed and as_of >= self._upper.epoch:
            raise NotFaithful("the epoch is not complete", as_of=as_of, upper=self._upper, hint="ask before upper")

    def window(self, lower: int, upper: int) -> Updates:
        """The updates of the epochs [lower, upper), each at its own epoch, consolidated, by epoch.

        Only batches that reach into the window are read. Raises NotFaithful where since is not before `lower` (nothing
        is before epoch 0) and at epochs that are not complete.
        """
        if self._since.closed or self._since.epoch > max(lower - 1, 0):
            raise NotFaithful("the past was compacted", lower=lower, since=self._since, hint="ask later than since")
        if not self._upper.closed and upper > self._upper.epoch:
            raise NotFaithful(
                "the epoch is not complete", window_upper=upper, upper=self._upper, hint="ask before upper"
            )
        return window(self.layout, self._batches, lower, upper)

    def _condense(self) -> None:
        """Merge everything that may be merged, whatever its sizes, at once."""
        while self._work(_WHATEVER) or self._begin(len(self._batches) - 2):
            pass

    @property
    def view(self) -> View:
        """The batches as kernels see them, for one question."""
        if self._view is None:
            self._view = View(self.layout, [batch for batch in self._batches if len(batch)])
        return self._view

    def _widen(self, at: int, upper: Frontier) -> None:
        batch = self._batches[at]
        described = type(batch.description)(batch.description.lower, upper, batch.description.since)
        self._batches[at] = batch.described(described)
        merger = self._mergers.get(at - 1)
        if merger is not None:
            merger.widen(upper)

    def _merge_small(self, at_least: int, *, graded: bool = True) -> None:
        """Merge at once the last small batches, if they are so many.

        Going back from the end, a batch joins while it is not over twice the sum of those after it (if `graded`).
        """
        batches = self._batches
        free = max(self._mergers, default=-2) + 2
        start = stop = len(batches)
        size = 0
        while start > free:
            mine = len(batches[start - 1])
            if mine >= SMALL or (graded and size and mine > 2 * max(size, _TINY)) or not self._may_merge(start - 1):
                break
            size += mine
            start -= 1
        if stop - start >= at_least:
            self._batches[start:stop] = [merge_small(self.layout, batches[start:stop], self._since)]
            self._view = None
            self._appended = 0

    def _work(self, fuel: int) -> int:
        """Begin the merges that sizes call for and give each one under way `fuel`; returns what all of them spent."""
        spent = 0
        worked: dict[int, int] = {}
        while self._due or self._mergers:
            self._begin_due()
            finished = False
            for at in sorted(self._mergers, reverse=True):
                merger = self._mergers[at]
                left = worked.get(id(merger), fuel)
                if left > 0:
                    worked[id(merger)] = merger.work(left)
                    spent += left - worked[id(merger)]
                if merger.done:
                    self._finish(at, merger)
                    finished = True
            if not finished:
                break
        return spent

    def _finish(self, at: int, merger: Merger) -> None:
        del self._mergers[at]
        self._batches[at : at + 2] = [self.place(merger.result())]
        self._mergers = {k if k < at else k - 1: m for k, m in self._mergers.items()}
        self._view = None
        self._due = True

    def _begin_due(self) -> None:
        """Begin merges of neighbours of which the earlier one is not twice the later one, and that one is not small."""
        if not self._due:
            return
        self._due = False
        at = 0
        while at + 1 < len(self._batches):
            earlier, later = len(self._batches[at]), len(self._batches[at + 1])
            if earlier < 2 * later and later >= SMALL and self._begin(at):
                at += 1
            at += 1

    def _begin(self, at: int) -> bool:
        busy = any(k in self._mergers for k in (at - 1, at, at + 1))
        if at < 0 or busy or not self._may_merge(at) or not self._may_merge(at + 1):
            return False
        self._mergers[at] = Merger(self._batches[at], self._batches[at + 1], self._since)
        return True

    def _may_merge(self, at: int) -> bool:
        return self._physical.closed or self._batches[at].description.upper.before(self._physical)
