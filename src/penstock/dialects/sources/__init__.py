"""Sources of argument values: an index of a conversation that finds which messages contain a value."""
