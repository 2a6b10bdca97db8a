"""Structured output: a type becomes a schema, a validation, and a value that grows while it streams."""
