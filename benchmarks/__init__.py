"""What penstock costs, as ratios measured in one run. `python -m benchmarks --help`, and README.md."""
