"""How text is read for calls: the source, marks, and values."""
