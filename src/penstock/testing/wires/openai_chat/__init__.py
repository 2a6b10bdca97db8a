"""`openai-chat`: its scripted responses, and the rules for its requests."""
