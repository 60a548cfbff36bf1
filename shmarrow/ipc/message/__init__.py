"""Encapsulated messages ("Encapsulated message format"): framing and metadata."""
