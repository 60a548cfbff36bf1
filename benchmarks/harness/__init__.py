"""Shared by all benchmarks: sides that take turns, statistics, memory, the facts of the machine, tables and plots."""
