"""The wire `ollama`."""
