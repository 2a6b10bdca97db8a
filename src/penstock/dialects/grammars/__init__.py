"""The grammars of the dialects, one module per family."""
