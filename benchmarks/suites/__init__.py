"""The suites: each module has its parts in ``PARTS``, functions that measure rows of a bench."""
