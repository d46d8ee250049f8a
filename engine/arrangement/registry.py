"""Registry: every arrangement once, found by the collection it indexes and the key it indexes by.

Always: an arrangement lives while a reader holds it, and no longer. Single writer: the dataflow that owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.engine.arrangement.arranged import Arranged, TraceHandle
from headrace.engine.batch.batch import Batch
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import Frontier
from headrace.engine.trace.spine import Spine, where_it_is

Name = tuple[str, tuple[int, ...], tuple[int, ...]]
"""(collection, key columns, order columns)."""


class Registry:
    """Arrangements by collection and key. `place`: see `Spine`; of the arrangements made from then on."""

    def __init__(self) -> None:
        self.place: Callable[[Batch], Batch] = where_it_is
        self._arranged: dict[Name, Arranged] = {}

    def find(self, collection: str, key: tuple[int, ...], order: tuple[int, ...] = ()) -> Arranged | None:
        """The live arrangement of `collection` by `key`, if there is one."""
        return self._arranged.get((collection, key, order))

    def add(self, collection: str, layout: Layout, name: str | None = None) -> Arranged:
        """A new, empty arrangement. Raises InvariantBroken if that collection is arranged by that key already."""
        at = (collection, layout.key, layout.order)
        if at in self._arranged:
            raise InvariantBroken("arranged twice", collection=collection, key=layout.key)
        arranged = Arranged(layout, Spine(layout), name or arrangement_name(*at), collection)
        arranged.spine.place = self.place
        self._arranged[at] = arranged
        return arranged

    def adopt(self, arranged: Arranged, name: str) -> None:
        """Take over an arrangement of another registry, under a stable name of its own."""
        arranged.name = arranged.collection = name
        self._arranged[name, arranged.layout.key, arranged.layout.order] = arranged

    def share(self, collection: str, layout: Layout, reader: str, since: Frontier | None = None) -> TraceHandle:
        """A handle on the arrangement of `collection` by `layout.key`, which is made if there is none."""
        arranged = self.find(collection, layout.key, layout.order)
        if arranged is None:
            arranged = self.add(collection, layout)
        return arranged.hold(reader, since)

    def release(self, handle: TraceHandle) -> bool:
        """Release `handle`; true if it was the last one and the arrangement was dropped."""
        handle.release()
        arranged = handle.arranged
        at = (arranged.collection, arranged.layout.key, arranged.layout.order)
        if arranged.read or self._arranged.get(at) is not arranged:
            return False
        del self._arranged[at]
        return True

    def drop_unread(self) -> tuple[str, ...]:
        """Drop the arrangements that no reader holds; their names."""
        dropped = [at for at, a in self._arranged.items() if not a.read]
        return tuple(self._arranged.pop(at).name for at in dropped)

    def __iter__(self) -> Iterator[Arranged]:
        return iter(tuple(self._arranged.values()))

    def __len__(self) -> int:
        return len(self._arranged)

    def __bool__(self) -> bool:
        return True

    def arrangements(self) -> Mapping[str, Arranged]:
        """The live arrangements by their stable names."""
        return {a.name: a for a in self._arranged.values()}

    @property
    def nbytes(self) -> int:
        """Memory of all arrangements, in bytes."""
        return sum(a.nbytes for a in self._arranged.values())


def arrangement_name(collection: str, key: tuple[int, ...], order: tuple[int, ...] = ()) -> str:
    """The stable name of an arrangement: its collection's name with the key and order columns."""
    by = ".".join(str(k) for k in key)
    return f"{collection}@{by}" + (f"^{'.'.join(str(k) for k in order)}" if order else "")
