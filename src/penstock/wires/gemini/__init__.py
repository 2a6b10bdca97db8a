"""The wire `gemini`."""
