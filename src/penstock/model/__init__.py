"""Models: requests to a provider, the stream of each response, and recordings."""
