"""The Arrow C data and stream interfaces, and the PyCapsules that carry them between libraries."""
