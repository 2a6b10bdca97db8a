"""Branches of runs: forks from any event, and the first difference between two runs."""
