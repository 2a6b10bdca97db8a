"""The scripted provider, one folder per wire: what it sends (play) and what it refuses (judge)."""
