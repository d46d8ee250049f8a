# mypy: allow-untyped-defs
"""A whole Update of a recursive group in one call, derivation by derivation: for changes of few rows.

What is done is what `headrace.engine.recursion.update` does in columns, term by term; the rules come as numbers (see
`headrace.engine.recursion.small_update`, which calls it). Invariant: where it ends without DONE, the stores are as they were
but for what is noted, and for new rows behind the others, which the caller takes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headrace.engine.kernels.compiler import helper, kernel
from headrace.engine.kernels.memory import load_i32
from headrace.engine.kernels.sparse_rules import (
    ATOMS,
    COUNT,
    COUNTS_AT,
    HEAD,
    NEXTS_AT,
    PATHS_AT,
    PLACE,
    RELATIONS_AT,
    ROUND,
    STEP,
    SUM,
    TOUCHED,
    WIDTH,
    agrees,
    first_of,
    fits,
    holds,
    lane,
    new_round,
    note_of,
    old_round,
    place_of,
    put,
    write_head,
)
from headrace.engine.kernels.sparse_state import ABSENT

DONE, GIVEN_UP, OVER_BUDGET, BROKEN = range(4)
"""How it ended. GIVEN_UP: columns take less, or there is no room for what is kept; BROKEN: a row lost more than it had."""

_TERM, _RULE, _START, _FOUND, _HEAD_PLACE, _AT = range(6)
_DELETION, _INSERTION, _REDISCOVERY = range(3)

_I64_2D = types.Array(types.int64, 2, "C")
_I32_2D = types.Array(types.int32, 2, "C")
_I32_3D = types.Array(types.int32, 3, "C")
_I64 = types.Array(types.int64, 1, "C")
_CODE: Any = types.Tuple((_I64, _I64_2D, _I64_2D, _I64_2D))  # type: ignore[no-untyped-call]
"""Numbers that the others point into; stores, tables and rules."""
_KEPT: Any = types.Tuple((_I32_3D, _I32_2D, _I64, _I64))  # type: ignore[no-untyped-call]
"""Notes by relation, derivations that wait, a heap of these by round, and two lanes of rows that are at hand."""


@helper
def _pushed(queue, heap, size, entry):
    """One more entry of the heap, whose least round is first."""
    heap[size] = entry
    at = size
    while at > 0 and queue[heap[(at - 1) // 2], _AT] > queue[heap[at], _AT]:
        parent = (at - 1) // 2
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent
    return size + 1


@helper
def _popped(queue, heap, size):
    """The heap without its first entry."""
    size -= 1
    heap[0] = heap[size]
    at = 0
    while True:
        least, child = at, 2 * at + 1
        for k in range(child, min(child + 2, size)):
            if queue[heap[k], _AT] < queue[heap[least], _AT]:
                least = k
        if least == at:
            return size
        heap[at], heap[least] = heap[least], heap[at]
        at = least


@helper
def _puts_off(code, stores, notes, rules, term, rule, start, now, places):
    """The round in which a derivation that was come upon may count, or -1."""
    atoms = rules[rule, ATOMS]
    most_old, most_new, still = np.int64(0), np.int64(0), True
    for atom in range(atoms):
        relation = code[rules[rule, RELATIONS_AT] + atom]
        old = old_round(stores, relation, places[atom])
        new = new_round(stores, notes, relation, places[atom])
        most_old, most_new = max(most_old, old), max(most_new, new)
        still = still and old == new
        if term == _DELETION and atom != start and new > old and (old < now or (old == now and atom < start)):
            return np.int64(-1)
        if term == _INSERTION and atom > start and new == now and old != now:
            return np.int64(-1)
    if term == _INSERTION:
        return most_new + 1 if most_new != ABSENT else np.int64(-1)
    if most_old == ABSENT or (term == _REDISCOVERY and (most_old < now or not still)):
        return np.int64(-1)
    return most_old + 1


@helper
def _counts(code, stores, notes, rules, entry, now):
    """Whether a derivation that waited does count in the round `now`."""
    term, rule, place = entry[_TERM], np.int64(entry[_RULE]), np.int64(entry[_HEAD_PLACE])
    head = rules[rule, HEAD]
    if new_round(stores, notes, head, place) < now:
        return False
    most_old, most_new, still = np.int64(0), np.int64(0), True
    for atom in range(rules[rule, ATOMS]):
        relation = code[rules[rule, RELATIONS_AT] + atom]
        at = np.int64(entry[_AT + 1 + atom])
        old, new = old_round(stores, relation, at), new_round(stores, notes, relation, at)
        most_old, most_new = max(most_old, old), max(most_new, new)
        still = still and old == new
        later = new > entry[_FOUND] or (new == entry[_FOUND] and atom > entry[_START])
        if term == _INSERTION and new != old and later:
            return False
    if term == _DELETION:
        return most_new >= now
    if term == _REDISCOVERY:
        return still
    return not (old_round(stores, head, place) == now and most_old == now - 1)


@helper
def _derived(code, tables_of, kept, term, rule, start, seed, now, last, state):
    """Let the derivations from one row wait for their rounds; how that ended. `state`: as `follow` has it."""
    stores, tables, rules = tables_of
    atoms = rules[rule, ATOMS]
    path = code[rules[rule, PATHS_AT] + start]
    steps, first = code[path], path + 1
    places = np.empty(atoms + 1, np.int64)
    cursors = np.empty(steps + 1, np.int64)
    row = np.empty(stores[rules[rule, HEAD], WIDTH], np.int64)
    places[start] = seed
    own = code[rules[rule, RELATIONS_AT] + start]
    if not fits(code, stores, own, first, seed):
        return DONE
    depth = 0
    if steps:
        cursors[0] = first_of(code, tables, stores, rules, rule, first + STEP, places)
        state[2] += 1
    while True:
        if depth == steps:
            if holds(code, stores, rules, rule, places):
                state[2] += 1
                ended = _waits(code, tables_of, kept, term, rule, start, now, last, places, row, state)
                if ended != DONE:
                    return ended
            depth -= 1
        if depth < 0:
            return DONE
        step = first + (depth + 1) * STEP
        place = cursors[depth]
        if place < 0:
            depth -= 1
            continue
        state[2] += 1
        if state[2] > min(state[3], state[4]):
            return OVER_BUDGET if state[2] > state[3] else GIVEN_UP
        relation = code[rules[rule, RELATIONS_AT] + code[step]]
        cursors[depth] = np.int64(load_i32(tables[code[step + 1], NEXTS_AT] + 4 * place))
        there = term == _INSERTION or old_round(stores, relation, place) != ABSENT
        if not there or not agrees(code, tables, stores, rules, rule, step, place, places):
            continue
        if not fits(code, stores, relation, step, place):
            continue
        places[code[step]] = place
        depth += 1
        if depth < steps:
            cursors[depth] = first_of(code, tables, stores, rules, rule, first + (depth + 1) * STEP, places)
            state[2] += 1


@helper
def _waits(code, tables_of, kept, term, rule, start, now, last, places, row, state):
    """Let a derivation wait, if it can count at all."""
    stores, tables, rules = tables_of
    notes, queue, heap, _ = kept
    atoms, relation = rules[rule, ATOMS], rules[rule, HEAD]
    at = _puts_off(code, stores, notes, rules, term, rule, start, now, places)
    if at < 0 or at > last:
        return DONE
    write_head(code, stores, rules, rule, places, row)
    if start == atoms:
        head = places[atoms]
        for k in range(stores[relation, WIDTH]):
            if lane(stores, relation, head, k) != row[k]:
                return DONE
    else:
        head = place_of(stores, tables, relation, row)
        if term == _DELETION:
            if head < 0 or old_round(stores, relation, head) != at:
                return DONE
        else:
            most_old = np.int64(0)
            for atom in range(atoms):
                most_old = max(most_old, old_round(stores, code[rules[rule, RELATIONS_AT] + atom], places[atom]))
            before, after = np.int64(ABSENT), np.int64(ABSENT)
            if head >= 0:
                before, after = old_round(stores, relation, head), new_round(stores, notes, relation, head)
            if after <= now or (before == at and most_old + 1 == at):
                return DONE
            if head < 0:
                head = put(code, stores, tables, relation, row)
                if head < 0:
                    return GIVEN_UP
    entry = state[0]
    if entry == len(queue) or state[1] == len(heap):
        return GIVEN_UP
    state[0] = entry + 1
    queue[entry, _TERM], queue[entry, _RULE], queue[entry, _START] = term, rule, start
    queue[entry, _FOUND], queue[entry, _HEAD_PLACE], queue[entry, _AT] = now, head, at
    for atom in range(atoms):
        queue[entry, _AT + 1 + atom] = places[atom]
    state[1] = _pushed(queue, heap, state[1], entry)
    return DONE


@helper
def _spread(code, tables_of, kept, now, last, changed, state):
    """Come upon what follows from the rows that changed in a round: pairs of relation and place, first all of lost ones."""
    rules = tables_of[2]
    lost, found = changed
    hand = kept[3]
    for k in range(lost + found):
        relation, place = hand[2 * k], hand[2 * k + 1]
        term = _DELETION if k < lost else _INSERTION
        for rule in range(len(rules)):
            for atom in range(rules[rule, ATOMS]):
                if code[rules[rule, RELATIONS_AT] + atom] == relation:
                    ended = _derived(code, tables_of, kept, term, rule, atom, place, now, last, state)
                    if ended != DONE:
                        return ended
            if k < lost and rules[rule, HEAD] == relation:
                head = rules[rule, ATOMS]
                ended = _derived(code, tables_of, kept, _REDISCOVERY, rule, head, place, now, last, state)
                if ended != DONE:
                    return ended
    return DONE


@kernel(types.int64(_CODE, _KEPT, types.int64, types.int64, _I64))
def follow(told, kept, changes, last, state):
    """Follow changes of rows from outside, which are noted, the first of its lost rows being at hand before those found.

    `changes`: of how many rows at hand the first are lost times 2^32, and how many are found; `state`: entries, waiting and work,
    0 each; the most work; the work at which it gives up, and what each round adds to that. Returns how it ended.
    """
    code, stores, tables, rules = told
    tables_of = (stores, tables, rules)
    notes, queue, heap, hand = kept
    lost, found = changes >> 32, changes & 0xFFFFFFFF
    now = np.int64(0)
    touched = np.empty((len(hand) // 2, 2), np.int64)
    while True:
        if now < last:
            ended = _spread(code, tables_of, kept, now, last, (lost, found), state)
            if ended != DONE:
                return ended
        if state[1] == 0:
            return DONE
        now = np.int64(queue[heap[0], _AT])
        state[4] += state[5]
        some = 0
        while state[1] > 0 and queue[heap[0], _AT] == now:
            entry = queue[heap[0]]
            state[1] = _popped(queue, heap, state[1])
            if not _counts(code, stores, notes, rules, entry, now):
                continue
            head = rules[entry[_RULE], HEAD]
            slot = note_of(stores, notes, head, np.int64(entry[_HEAD_PLACE]))
            if slot < 0:
                return GIVEN_UP
            if notes[head, slot, TOUCHED] != now:
                if some == len(touched):
                    return GIVEN_UP
                touched[some, 0], touched[some, 1] = head, slot
                some += 1
                notes[head, slot, TOUCHED], notes[head, slot, SUM] = now, 0
            notes[head, slot, SUM] += -1 if entry[_TERM] == _DELETION else 1
        lost = found = 0
        for k in range(some):
            relation, slot = touched[k, 0], touched[k, 1]
            changed = np.int64(notes[relation, slot, SUM])
            if changed != 0:
                place = np.int64(notes[relation, slot, PLACE])
                if old_round(stores, relation, place) == now:
                    changed += np.int64(load_i32(stores[relation, COUNTS_AT] + 4 * place))
                if changed < 0:
                    return BROKEN
                notes[relation, slot, COUNT] = changed
                notes[relation, slot, ROUND] = now if changed > 0 else ABSENT
                if changed == 0:
                    hand[2 * lost], hand[2 * lost + 1] = relation, place
                    lost += 1
        for k in range(some):
            relation, slot = touched[k, 0], touched[k, 1]
            place = np.int64(notes[relation, slot, PLACE])
            is_new = notes[relation, slot, ROUND] == now and old_round(stores, relation, place) != now
            if is_new and notes[relation, slot, SUM] != 0:
                at = 2 * (lost + found)
                hand[at], hand[at + 1] = relation, place
                found += 1
