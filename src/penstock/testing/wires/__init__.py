"""The scripted provider, one folder per wire: its responses (play), and the requests that it rejects (judge)."""
