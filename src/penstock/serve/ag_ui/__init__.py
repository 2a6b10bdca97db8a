"""AG-UI 1.0: agents for clients of the Agent User Interaction Protocol."""
