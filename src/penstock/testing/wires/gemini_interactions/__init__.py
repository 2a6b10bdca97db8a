"""`gemini-interactions`: its scripted responses, and the rules for its requests."""
