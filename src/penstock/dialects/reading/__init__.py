"""Parsing text for calls: cursor and source, marks, values, and the parts that several grammars share."""
