"""The wire `openai-responses`: OpenAI's Responses API, also on Azure and from compatible providers.

A response consists of output items (messages, reasoning, calls, hosted tools), each with its own end, which confirms a
call. The last event repeats the whole response.
"""
