"""How each dialect is written: its tool list, its calls and its results, mostly as templates."""
