"""Threads and event loops that a process shares, and what a fork does to them."""
