"""Other ways to read a stream, for code that exists already."""
