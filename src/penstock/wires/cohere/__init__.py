"""The wire `cohere`: Cohere's chat API, version 2.

Calls have their own start and end events. The model's tool plan must be sent back with them.
"""
