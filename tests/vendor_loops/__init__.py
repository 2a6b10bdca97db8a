"""The vendors' own agent loops, as programs that the tests run."""
