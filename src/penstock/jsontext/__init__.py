"""JSON and characters as they arrive: scanner, partial values, surrogate pairs, conversion to JSON values."""
