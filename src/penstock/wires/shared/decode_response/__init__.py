"""The parts of response decoders: frames of a provider to events."""
