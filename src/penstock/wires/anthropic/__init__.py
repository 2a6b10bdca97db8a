"""The wire `anthropic`: Anthropic's Messages API, also on Vertex AI, on AWS InvokeModel, and from compatible providers.

A response consists of numbered blocks, each with its own start and end. The end of its block confirms a call, so tools
can start before the response ends. Signatures of reasoning must be sent back.
"""
