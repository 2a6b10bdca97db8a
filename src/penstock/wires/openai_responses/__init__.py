"""The wire `openai-responses`."""
