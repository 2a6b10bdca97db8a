"""Guarding text: holds back each piece of a response until the agent's guard has cleared it."""
