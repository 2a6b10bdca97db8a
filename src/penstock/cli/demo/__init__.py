"""The demo: an agent with a scripted model, and a chart of its run."""
