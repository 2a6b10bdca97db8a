"""The wire `bedrock`: Amazon Bedrock's Converse API, for the models of many vendors.

Streams have the AWS event-stream framing. Blocks are numbered as Anthropic's are, but text and reasoning have no start.
"""
