"""The wire `openai-chat`."""
