"""Feeds: the events of runs for all readers of a process."""
