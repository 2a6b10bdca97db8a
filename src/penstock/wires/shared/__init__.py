"""What the wires share: the parts of decoders, of encoders, and of readers of requests."""
