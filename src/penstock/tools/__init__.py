"""Tools: a typed function becomes a schema, argument checks and a result."""
