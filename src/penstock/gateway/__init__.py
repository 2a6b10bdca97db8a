"""A gateway as an ASGI app: clients of five protocols in front, any provider or local server behind."""

from penstock.gateway.app import GatewayApp, app
from penstock.gateway.config.settings import GatewaySettings, ModelRoute, Target, Upstream, Watch, WebTool
from penstock.healing.settings import Healing

__all__ = ["GatewayApp", "GatewaySettings", "Healing", "ModelRoute", "Target", "Upstream", "Watch", "WebTool", "app"]
