"""Our own protocol: endpoints for runs, their bodies and replies, and its OpenAPI description."""
