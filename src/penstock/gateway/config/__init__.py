"""The configuration of a gateway: its settings, and the file and command line that they come from."""
