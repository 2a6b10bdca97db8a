"""Tool calls that a model writes into its text: 52 ways of doing so, and one way of reading them."""
