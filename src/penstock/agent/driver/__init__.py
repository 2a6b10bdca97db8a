"""The driver of a run: it carries out the commands of the machine on an event loop, for sync and async readers."""
