"""Runs in a log, for the commands that list, continue and steer them."""
