"""Adapters for existing code: an accumulator, callbacks, a parser of calls in XML, the shapes of other libraries."""
