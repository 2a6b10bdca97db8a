"""Agents: a model, its tools, and the drivers that run the loop in sync and async code."""
