"""Adapters for existing code: an accumulator of raw deltas, callbacks, and a parser of calls in XML."""
