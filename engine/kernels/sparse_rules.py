# mypy: allow-untyped-defs
"""The rules of a recursive group as numbers, and its stores as addresses: rows and derivations, one at a time.

Invariant: only rows behind those that a store had, its tables' links to them, and slots are written. Compiled into the kernel of
`sparse_update`; `headrace.engine.recursion.small_update` writes the numbers.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.kernels.compiler import helper
from headrace.engine.kernels.hashing import scramble
from headrace.engine.kernels.memory import load_i32, load_i64, store_i32, store_i64
from headrace.engine.kernels.sparse_state import ABSENT

LANES_AT, WIDTH, ROUNDS_AT, COUNTS_AT, SLOTS_AT, SIZE, ROOM, NOTED, WHOLE, TABLES = range(10)
"""Of a store: addresses of its lanes, rounds, counts and slots, with widths and sizes; how many notes there are; its table by all
lanes, and how many tables it has, which follow one another."""

HEADS_AT, MASK, NEXTS_AT, KEYS, KEYS_AT = range(5)
"""Of a table: addresses, and where in the code its lanes are listed."""

HEAD, ATOMS, RELATIONS_AT, CHOSEN_AT, HEAD_NULLS, CONDITIONS, CONDITIONS_AT, PATHS_AT = range(8)
"""Of a rule: its head's relation and its atoms; per lane of the head an atom, a column and the lane of its NULLs' bits (-1: it
cannot be NULL); conditions; and one path for each atom and for the head."""

STEP = 8
"""Numbers of a step: atom, table, keys, where their sources are, lane of NULLs' bits, bits, equal lanes, where they are."""

CONDITION = 7
"""Numbers of a condition: comparison, and for each side an atom (-1: a number), column or number, lane of NULLs' bits."""

EQUAL, UNEQUAL, LESS, GREATER, AT_MOST, AT_LEAST = range(6)

PLACE, ROUND, COUNT, SUM, TOUCHED = range(5)
"""Of a note; the last two are of the round in which derivations of it count."""

_SEED = np.uint64(0x9E3779B97F4A7C15)


@helper
def lane(stores, relation, place, column):
    """A lane of a row."""
    return load_i64(stores[relation, LANES_AT] + 8 * (place * stores[relation, WIDTH] + column))


@helper
def old_round(stores, relation, place):
    """The round of a row before the Update."""
    return np.int64(load_i32(stores[relation, ROUNDS_AT] + 4 * place))


@helper
def new_round(stores, notes, relation, place):
    """The round that a row is to have, as far as that is known."""
    slot = np.int64(load_i32(stores[relation, SLOTS_AT] + 4 * place))
    if slot < 0:
        return old_round(stores, relation, place)
    return np.int64(notes[relation, slot, ROUND])


@helper
def note_of(stores, notes, relation, place):
    """The number of a row's note, which at first says what is; -1 where there is no room."""
    slot = np.int64(load_i32(stores[relation, SLOTS_AT] + 4 * place))
    if slot >= 0:
        return slot
    slot = stores[relation, NOTED]
    if slot == notes.shape[1]:
        return np.int64(-1)
    stores[relation, NOTED] = slot + 1
    store_i32(stores[relation, SLOTS_AT] + 4 * place, np.int32(slot))
    notes[relation, slot, PLACE] = place
    notes[relation, slot, ROUND] = load_i32(stores[relation, ROUNDS_AT] + 4 * place)
    notes[relation, slot, COUNT] = load_i32(stores[relation, COUNTS_AT] + 4 * place)
    notes[relation, slot, TOUCHED] = -1
    return slot


@helper
def place_of(stores, tables, relation, row):
    """Where a row stands, there or not, or -1."""
    table = stores[relation, WHOLE]
    width = stores[relation, WIDTH]
    hashed = _SEED
    for k in range(width):
        hashed = scramble(hashed ^ np.uint64(row[k])) + _SEED
    place = np.int64(load_i32(tables[table, HEADS_AT] + 4 * np.int64(hashed & np.uint64(tables[table, MASK]))))
    while place >= 0:
        equal = True
        for k in range(width):
            equal = equal and lane(stores, relation, place, k) == row[k]
        if equal:
            return place
        place = np.int64(load_i32(tables[table, NEXTS_AT] + 4 * place))
    return place


@helper
def put(code, stores, tables, relation, row):
    """Where a new row stands from now on, not there yet; -1 where there is no room."""
    place, width = stores[relation, SIZE], stores[relation, WIDTH]
    if place == stores[relation, ROOM]:
        return np.int64(-1)
    stores[relation, SIZE] = place + 1
    for k in range(width):
        store_i64(stores[relation, LANES_AT] + 8 * (place * width + k), row[k])
    store_i32(stores[relation, ROUNDS_AT] + 4 * place, np.int32(ABSENT))
    store_i32(stores[relation, COUNTS_AT] + 4 * place, np.int32(0))
    store_i32(stores[relation, SLOTS_AT] + 4 * place, np.int32(-1))
    for table in range(stores[relation, WHOLE], stores[relation, WHOLE] + stores[relation, TABLES]):
        hashed = _SEED
        for k in range(tables[table, KEYS]):
            hashed = scramble(hashed ^ np.uint64(row[code[tables[table, KEYS_AT] + k]])) + _SEED
        head = tables[table, HEADS_AT] + 4 * np.int64(hashed & np.uint64(tables[table, MASK]))
        store_i32(tables[table, NEXTS_AT] + 4 * place, load_i32(head))
        store_i32(head, np.int32(place))
    return place


@helper
def first_of(code, tables, stores, rules, rule, step, places):
    """The first place in the chain of a step's key."""
    table = code[step + 1]
    hashed = _SEED
    for k in range(code[step + 2]):
        source = code[step + 3] + 2 * k
        relation = code[rules[rule, RELATIONS_AT] + code[source]]
        hashed = scramble(hashed ^ np.uint64(lane(stores, relation, places[code[source]], code[source + 1]))) + _SEED
    return np.int64(load_i32(tables[table, HEADS_AT] + 4 * np.int64(hashed & np.uint64(tables[table, MASK]))))


@helper
def fits(code, stores, relation, step, place):
    """Whether a row is one of the step's atom at all."""
    if code[step + 5] != 0 and lane(stores, relation, place, code[step + 4]) & code[step + 5] != 0:
        return False
    for k in range(code[step + 6]):
        pair = code[step + 7] + 2 * k
        if lane(stores, relation, place, code[pair]) != lane(stores, relation, place, code[pair + 1]):
            return False
    return True


@helper
def agrees(code, tables, stores, rules, rule, step, place, places):
    """Whether a row has the key that a step asks for."""
    table, relation = code[step + 1], code[rules[rule, RELATIONS_AT] + code[step]]
    for k in range(code[step + 2]):
        source = code[step + 3] + 2 * k
        of = code[rules[rule, RELATIONS_AT] + code[source]]
        value = lane(stores, of, places[code[source]], code[source + 1])
        if lane(stores, relation, place, code[tables[table, KEYS_AT] + k]) != value:
            return False
    return True


@helper
def _side(code, stores, rules, rule, at, places):
    """A side of a condition, and whether it is a value at all."""
    if code[at] < 0:
        return code[at + 1], True
    relation = code[rules[rule, RELATIONS_AT] + code[at]]
    place = places[code[at]]
    if code[at + 2] >= 0 and (lane(stores, relation, place, code[at + 2]) >> code[at + 1]) & 1 != 0:
        return np.int64(0), False
    return lane(stores, relation, place, code[at + 1]), True


@helper
def holds(code, stores, rules, rule, places):
    """Whether a rule's conditions are true of a derivation."""
    for k in range(rules[rule, CONDITIONS]):
        at = rules[rule, CONDITIONS_AT] + k * CONDITION
        one, known = _side(code, stores, rules, rule, at + 1, places)
        other, too = _side(code, stores, rules, rule, at + 4, places)
        how = code[at]
        true = (
            (how == EQUAL and one == other)
            or (how == UNEQUAL and one != other)
            or (how == LESS and one < other)
            or (how == GREATER and one > other)
            or (how == AT_MOST and one <= other)
            or (how == AT_LEAST and one >= other)
        )
        if not (known and too and true):
            return False
    return True


@helper
def write_head(code, stores, rules, rule, places, row):
    """The head of a derivation."""
    width = stores[rules[rule, HEAD], WIDTH]
    nulls = rules[rule, HEAD_NULLS]
    if nulls >= 0:
        row[nulls] = 0
    for k in range(width - (nulls >= 0)):
        at = rules[rule, CHOSEN_AT] + 3 * k
        relation = code[rules[rule, RELATIONS_AT] + code[at]]
        place = places[code[at]]
        row[k] = lane(stores, relation, place, code[at + 1])
        if nulls >= 0 and code[at + 2] >= 0:
            missing = (lane(stores, relation, place, code[at + 2]) >> code[at + 1]) & 1
            row[nulls] |= missing << k
