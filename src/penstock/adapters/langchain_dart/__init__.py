"""LangChain Dart: parts with the raw argument string, messages that concatenate, and an agent that yields results."""

from penstock.adapters.langchain_dart.agent import Agent, ChatResult
from penstock.adapters.langchain_dart.chat_message import ChatMessage, MessageRole, TextPart, ToolPart, ToolPartKind

__all__ = ["Agent", "ChatMessage", "ChatResult", "MessageRole", "TextPart", "ToolPart", "ToolPartKind"]
