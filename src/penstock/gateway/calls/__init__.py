"""How a gateway asks a model for calls: natively, in a dialect, or as unparsed text; and what `auto` has learned."""
