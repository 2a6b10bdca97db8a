"""JSON and characters as they arrive: scanner, partial values, surrogates."""
