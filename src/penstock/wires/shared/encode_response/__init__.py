"""The response encoder, and the parts that the wires give it: events to the stream of a protocol."""
