"""Models: a name, a provider and a connection; the stream of one response; recordings."""
