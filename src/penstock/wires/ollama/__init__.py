"""The wire `ollama`: Ollama's native API, `/api/chat` and `/api/generate`.

Streams are NDJSON. Calls come whole, and older servers send no ids.
"""
