"""Benchmarks of penstock, as ratios measured in one run: see `python -m benchmarks --help` and README.md."""
