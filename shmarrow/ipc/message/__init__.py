"""Encapsulated messages: framing and metadata ("Encapsulated message format")."""
