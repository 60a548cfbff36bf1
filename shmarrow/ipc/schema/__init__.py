"""Encoding and decoding of types, fields and schemas ("Schema message")."""
