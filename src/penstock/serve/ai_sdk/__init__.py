"""AI SDK: agents for `useChat` and other readers of UI message streams, of the versions 6 and 7."""
