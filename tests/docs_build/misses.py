"""The goals that are missed: a table made of the figures, and what is known of each, written by hand.

Always: by how much a goal is missed comes from the figures alone, so that the words hold none that a benchmark measures anew;
what is written by hand says what a profile showed and what was tried. Called by `figures`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.docs_build.markdown import table

Row = Mapping[str, Any]

HEAD = """## Goals that are missed, and why

Within each benchmark those come first that are furthest behind. The factor is how many times better ours would have to be.
"""

REASONS = {
    "freshness": """Database, broker, connector, writer, checker and sidecar want 1.7 of the two cores, so that each waits for a
core as long as it runs, or longer; who has more threads waits less. Of what the sidecar's loop runs, two fifths are the engine, a
third is taking records in (half of that decoding), a tenth emitting, and nothing in these stands out. Tried: results of a
reduce looked up in one call of a kernel (kept: a seventh of a step); steps not more often than every 10, 20 or 30 ms (p50 3 to
17 ms more, processor time 3 to 20 % less: left); steps that do not wait for an idle sink (no difference: left); steps that begin
before a sink is idle, by what its writes usually take (p50 half as much again: left); pauses between writes of 15 ms (no
difference) and 30 ms (p50 half as much again: left); shorter slices of the scheduler, 0.1 and 1 ms (no difference: left). Memory
is as `make bench-resident` says. A load shares the cores with the sink's Postgres, which takes the rows in.""",
    "catchup": """The loop's thread is busy all the while, and shares Python's lock with those of the sinks: a fifth of its time
is decoding, a sixth the engine, an eighth putting transactions together, a ninth taking messages from Kafka's client, a
twentieth binding. Of the start, imports take 1.9 s, loading the kernels 0.8 s, the state and the sinks half a second each.
Tried: where the rest begins is kept in heaps instead of looked for in all that waits, and freshness is observed once a write
(kept: an eighth to a sixth faster together); changes of columns that a view does not read cancel before they are joined (kept:
the engine's part of a transaction no longer grows with what is stored; nearly half as many transactions a second more at
100,000); fetching and decoding in processes of their own, two workers that read (a third as many transactions a second more, a
start of two seconds more, twice the memory: no sooner right on two cores).""",
    "views": """Of a step through the five views a third is the tables' intake, a quarter look-ups, a fifth reduces, an eighth
each projections and arranging. A view of another shape adds to every step that touches its tables: its own joins and groups
are a fixed number of Python's calls between kernels, however few rows come; shared arrangements spare memory, and not these.
A kernel takes four times as long in a step as in a loop of its own: its code and data have left the nearest cache since.
Tried: sealing, joins and reduces of few rows in one call of a kernel each (kept), results of a reduce looked up in one call
(kept: a seventh of the step), expressions over few rows as a program that one kernel runs (kept: projections take a quarter
of the time, the step a third less), look-ups that wait for their stream alone, and merges of few small batches in one call
(kept: a sixth), a path of several look-ups in one call of a kernel (a third fewer calls, no difference to the step: left), a
filter and the projection behind it in one node (a quarter less where most rows pass, a twelfth more where few do: left).""",
    "resident": """Three fifths are libraries, mapped files and the code of kernels, whatever the views are: Python with numpy,
pyarrow, numba, the clients and sqlglot is 170 MB before Headrace is loaded. Arrangements are a tenth. The rest is what the
allocator keeps for the next step. Tried: one heap for all threads (kept), kernels whose code is loaded when they are first
called (kept), merges that give no room to lanes of one value (kept).""",
    "sql": """Where Postgres has a view anew in some ten milliseconds (Q2, Q8, Q11, Q19, Q20, Q22 at this scale), following 10,000
rows costs more than that, as each row passes the table's intake, which keeps rows by primary key. The peer's plans by hand have
integers for amounts and keep no tables; Pathway's answers are slow enough but for Q5 and Q9, whose joins of six tables are most
of ours. Tried: joins in another order a changed table (kept: delta joins), look-ups that sift many keys in a small trace
(kept), narrow columns through a plan (kept).""",
    "arrange": """Many epochs of one update: two fifths of the time are merges (three quarters of them comparing and adding
up, the rest copying), a sixth each is sealing a physical batch and making one of eight small ones, the rest is Python, a
fixed cost a batch: with ten times the epochs a batch it all but goes. The peer moves key, time and diff; ours moves a hash
and a payload as well and stages each entry in a scratch, and each update is moved once a level, about seven times. Tried:
sealing in one call of a kernel (saves a fifth of sealing, a few hundredths of the whole: left alone); rows of short runs
copied one by one (kept: rows of eleven columns move three to ten times as fast, narrow ones a tenth faster); merges without
branches that nothing can guess (kept: three fifths of the time where few rows meet, less than half where six share a key; of
the stream copying took half as long, and comparing a quarter longer); adding up before the other lanes are fetched (slower:
left). Not tried: merging more than two batches at a time, and a merge that writes its result without a scratch, for lanes
that are constant on both sides. The tail of epochs of 10,000 changes is that of the same merges.""",
    "reduce": """Of a step of many changes the table's intake is more than half: it finds out how many copies of each row there
are, as a retraction of a row that is not there has to be an error; merges are a third. What a count shows follows from those
copies without another look. The peers take their input at its word, and look each key up once. Of the first rows numbering by
group is a third, finding out what they come to a fifth, hashing and putting them in order a tenth each. Tried: look-ups of many
keys pass over a batch in order, and guess only where it has more than 128 entries a key (kept: a third of the time of that
look-up, which was most of the intake; a step of 100,000 changes took twice as long); rows are numbered by parts of their hashes
that fit the cache, and what is known of a group is read in order (kept: first rows take half as long); rows of which no two are
alike are sealed in the order that the intake found, without sorting them again (kept: first rows take a fifth to a third less;
all three together 0.37 of the time); a search that counts the entries around a guess, in place of branches (a fifth slower, as
it reads two lines of memory where one would do: left).""",
    "join": """One key tells the fixed cost of a dispatch: Python's calls of a step. At 10 and 100 keys the figure is that and
the memory's latency: a look-up interpolates and lets all reads of a pass wait together. Of rows arranged at once numbering them
by key is nearly half, as each has to be known to be new; putting their columns in order a quarter, hashing an eighth, and
sealing is little else. The peer's input is not asked whether its keys are new. Of 100,000 keys half is the look-up. Tried: rows
are sealed in the order in which the intake numbered them (kept: rows arranged at once take 0.6 of the time); look-ups of many
keys pass over a batch in order (kept: 100,000 keys take 0.6 to 0.7 of the time); rows numbered by parts of their hashes while
the group of each is written where its row stands (no gain, as these writes are in no order: only whoever needs it asks for it
now); columns put in order part by part (half the time of that in a loop apart, an eighth of the whole at best, and the places
of the parts to be kept for it: left); a search that counts entries around a guess (a fifth slower: left).""",
    "sharing": """What an install keeps is tens of bytes an install over a thousand of them, a third of the peer's; no object of
ours is left (a test counts them), and Python's allocator holds nothing more. Tried: one heap for all threads, Arrow's memory
from the same heap as the rest, Python's own objects from there too (left: each alone kept as much, all three together three
fifths). Of a change ten queries do their own part each, which is a fixed number of calls for every one of them, on a shared
arrangement as on a private one. Tried: many changes are sifted by the hashes of a query's few keys before they are numbered
by group (kept: a change takes two thirds of the time and shared : private a quarter less; loading the rows under ten queries
takes a sixteenth, ten private tables a third); more marks an entry in that sifting, where all of them fit the nearest cache
(kept: fewer changes pass that are not there); look-ups that pass over a batch in order (kept: both sides are faster, the
private one by more, so that the proportion is an eighth worse).""",
    "graph": """A hundred arguments at a time: no kernel takes a quarter of a step. It goes to the hundreds of calls of Python
and Arrow that a step of any size makes, in the intake of the arguments (a table, which counts them), in arranging them and in
each operator on the way; with one hop that is nearly all of it. Tried: arguments that are each a change of their own keep their
rows as they came, where they were copied by group; other rows are put together by a kernel, and images are found by key (kept:
look-ups take a fifth less, one hop a seventh); look-ups of few keys in small batches pass over these in order (kept: 0.6 of the
time of such a look-up); batches of few rows that are merged have theirs put together by a kernel in place of Arrow (half the
time of that, no difference to a step: left). Of sealing a small batch seven tenths are the kernel, and asking whether rows fit
and are no slice of something large is a tenth: nothing there is worth leaving out.""",
    "recursion": """A first computation looks every derivation up in a hash table of the rows so far, and that one kernel is half
of it, a third of which is touching memory for the first time; the rest is the table's intake, the result's arrangement and
putting it out; batch libraries sort and merge, whose memory is read in order. Tried: counting rows as the join finds them,
all rounds of a linear rule in one call (kept: nothing is listed on the way), rows of the whole added up before they are
counted (kept: a fifth of it), stores that grow in larger steps (kept: half of what growing took), growing in place and
comparing lanes without a list of them (no difference: left). A change of few rows is followed by one kernel, which is a
quarter of its step; the rest is Python's calls of the nodes around it, a fixed part that the peer has not. Tried for these:
what changed is forgotten once nobody may ask for it, also between checkpoints (kept), nothing is kept or looked up of the
last round of a loop that ends (kept: a fifth), the kernel gives up where columns take less (kept). A large recursion beside
nine views shares one core with them for as long as the work of a step that it may take.""",
    "datalog": """A change of few facts is Python's calls around one kernel, one or two milliseconds whatever the rules are; a
question with a parameter is such a change. Batch libraries follow nothing and sort. Of the closure of a random graph nearly
every change moves the rounds of half of the rows: an Update takes two fifths of a Bootstrap's time. A fact of points-to whose
removal is dear takes up to a third: its rows come in other rounds, though hardly any goes. What is lost against the better
strategy are Updates that are dropped; Bootstrap goes on from their rounds. Tried: the order of a rule's atoms by how many
rows match (kept: points-to's work grew with the square of the facts); counted work by what each term takes (kept); an
Update's end foreseen from its last round, from the mean of all rounds, from three rounds and from their growth (left: none
was sure, and an epoch of the ontology came to nearly one and a half Bootstraps); a Bootstrap that goes on from the rounds
that a dropped Update has done, which may do as much more as that spares (kept). A fact of points-to whose removal takes 0.8 s
is followed in columns: its rows come in other rounds, each of some calls for each rule.""",
    "tpch": """A table keeps its rows by primary key, whoever reads them, as the product needs them there (old rows of updates,
resync); the peer's inputs keep nothing. The lines without tables show what is left: the same plans over rows as they come. Of
Q6 with its table, merging the table's own arrangement is two fifths, three quarters of that copying rows; looking up whether
each key is new a seventh. A quarter of the whole is the system's, which hands out fresh memory. Tried: rows of short runs
copied one by one in merges (kept: halves their part); sifting look-ups that ask a small trace for many keys (kept: it serves
the joins with nations and regions); rows of new keys sealed in the order in which the intake numbered them, and look-ups that
pass over a batch in order (kept: Q6 and Q1 with an epoch a row take three quarters of the time, and sealing has all but gone);
memory that the allocator keeps in place of giving it back (as many pages touched for the first time, as what is kept grows:
left). Not tried: merging more than two batches at a time, which would copy each row less often.""",
    "workers": """What is lost is the exchange: every other row is copied to the other worker, which weighs where the work on
a row is least. Arranging numbers is little else.""",
}
"""Benchmark → what its profile says, and what was tried."""

FURTHEST = """The three places where ours is furthest behind:

1. **TPC-H Q6 and Q1**, because a table keeps its rows by primary key whoever reads them, while the peer's inputs keep
nothing and these two queries need nothing kept: the lines without tables, which are the peer's work, come several times
nearer.

2. **Many epochs of one update, a thousand a physical batch, and a hundred arguments of a look-up**: both are physical
batches of few rows, of which Python's calls are a fixed part that the peer has not; the streams are merged besides, once a
level, with a payload that the peer does not have.

3. **First computations of recursive views beside batch libraries**, which sort and merge where ours looks each derivation up in
a hash table; and their changes of one row, and questions with a parameter, where the calls of a step are most of it.

The last full runs beside the peer were on one afternoon, one after the other, on a machine that did nothing else but, now and
then, on its second core, short tests of other parts.
"""
"""The places where we are furthest behind, and why."""


def missed(rows: Sequence[Row]) -> list[tuple[float, Row]]:
    """The rows whose goal is missed, by how many times, worst first; where the goal is nothing at all that is infinite."""
    found = []
    for row in rows:
        if row["met"] is False:
            better, worse = (row["ours"], row["goal"]) if row["unit"].endswith("/s") else (row["goal"], row["ours"])
            found.append((worse / better if better else math.inf, row))
    return sorted(found, key=lambda one: -one[0])


def section(figures: Mapping[str, Sequence[Row]]) -> str:
    """The page's part; nothing where no goal with a reason is missed."""
    parts = []
    for name, why in REASONS.items():
        found = missed(figures.get(name, ()))
        if found:
            lines = [(row["name"], "—" if factor == math.inf else f"{factor:.2f}") for factor, row in found]
            parts.append(f"### `make bench-{name}`\n\n{table(('missed goal', 'factor'), lines)}\n{why}\n")
    return "\n".join([HEAD, FURTHEST, *parts]) if parts else ""
