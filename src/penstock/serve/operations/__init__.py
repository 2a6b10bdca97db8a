"""What operators ask a process that drives runs: metrics, whether it is ready, and a page to look at all runs."""
