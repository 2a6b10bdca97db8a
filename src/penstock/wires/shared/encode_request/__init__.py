"""The parts of request encoders: a history and its tools in the form that a provider accepts."""
