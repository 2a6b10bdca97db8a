"""The wire `anthropic`."""
