"""What is shown in a terminal: a fold over events."""
