"""How a gateway asks for calls: in dialects, as raw text, and what `auto` learns."""
