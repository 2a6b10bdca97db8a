"""The only part that does I/O: the rules of HTTP, and the two clients that carry them out."""
