"""Schema messages ("Schema message"): types, fields and schemas to tables and back."""
