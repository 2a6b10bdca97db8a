"""The wire `openai-chat`: OpenAI's Chat Completions API, spoken by most other providers, local servers and gateways.

It is the loosest of the protocols: what identifies a call differs from server to server (`routing`), reasoning has many
field names, and a call is confirmed only by the finish reason. Mistral's API is read by this wire as well.
"""
