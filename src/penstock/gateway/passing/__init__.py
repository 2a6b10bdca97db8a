"""Requests that a gateway passes on as they are, and the endpoints of Ollama that it answers for other servers."""
