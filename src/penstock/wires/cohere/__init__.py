"""The wire `cohere`."""
