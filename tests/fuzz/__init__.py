"""Fuzzing. `fuzz_*.py` need atheris; `streams` and `runs` build their inputs from seeds and need only Python."""
