"""The wire `bedrock`."""
