"""Agents as models, for clients of Chat Completions, Responses and Messages."""
