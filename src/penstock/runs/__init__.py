"""Agents on a log: start, follow and steer runs from any process, and the workers that drive them."""
