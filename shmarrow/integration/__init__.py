"""Arrow integration tests: JSON format and commands."""
