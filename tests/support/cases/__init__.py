"""The cases of all suites: types with values and their memory, how they are written, and random ones."""
