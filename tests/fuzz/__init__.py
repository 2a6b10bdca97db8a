"""Fuzzing. `fuzz_*.py` need atheris; `streams`, `runs` and `states` make their inputs from seeds, without it."""
