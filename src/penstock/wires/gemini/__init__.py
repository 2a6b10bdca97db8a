"""The wire `gemini`: Google's Gemini API, on AI Studio and Vertex AI.

Calls come whole or, in `partialArgs`, as values at paths of the arguments. Thought signatures must be sent back on the
part that they came with.
"""
