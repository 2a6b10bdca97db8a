"""Web tools that clients declare as hosted: run by the gateway, for models whose provider does not have them."""
