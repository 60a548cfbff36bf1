"""The suites: what is measured.

A module is a suite. Its ``PARTS`` are functions that get a :class:`harness.bench.Bench` and measure rows:

* ``bench.row(name, sides, required, turns)`` lets functions take turns: ours first, then the peers that something is
  required beside, then others. ``required`` is one of :mod:`harness.figures`, such as ``faster(3)`` or ``AS_FAST``.
* ``bench.report(name, rounds, required)`` takes times that were measured elsewhere, for example by other processes.
* ``bench.limit(name, values, limit, unit)`` is for figures that have a limit of their own, such as memory.

Give each row a name of its own, say in it what is measured where (how many columns, which size, seen before or not),
and check on the way that all sides found the same values. A ``point`` puts the row into a plot. A new suite needs a
line in ``SUITES`` of ``benchmarks/run.py``. Peers are imported at the top of a module or in a part: where one is not
installed, the suite or the part is left out and the report says so.
"""
