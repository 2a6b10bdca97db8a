"""Guarding text: a response is held back in pieces until the guard of the agent has cleared them."""
