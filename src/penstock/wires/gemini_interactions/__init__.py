"""The wire `gemini-interactions`: Google's Interactions API, on AI Studio and Vertex AI.

A response is a list of steps: thoughts, texts, calls, and what hosted tools did. The signature of a call is on the
thought before it. Histories are sent whole, and nothing is stored at the provider unless a request asks for it.
"""
