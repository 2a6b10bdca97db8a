"""Agents: a model, its tools, and the driver that runs the loop in sync and async code."""
