"""A gateway as an ASGI app: any provider or local server behind, a right stream in front, in five protocols."""

from penstock.gateway.app import GatewayApp, app
from penstock.gateway.settings import GatewaySettings, Healing, ModelRoute, Target, Upstream

__all__ = ["GatewayApp", "GatewaySettings", "Healing", "ModelRoute", "Target", "Upstream", "app"]
