"""The prompts of the dialects: their tool lists, calls and results, mostly as templates."""
