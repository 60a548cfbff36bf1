"""What all benchmarks share: sides that take turns, statistics, memory, the facts of the machine, tables and plots."""
