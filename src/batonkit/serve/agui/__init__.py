"""AG-UI: serve a team to user interfaces that speak the Agent-User Interaction Protocol, version 1.0.

May import serve.http, runs and the layers below; `ag_ui` and Starlette are imported when an app is created.
"""

from ..frontend_tools import FrontendTools, with_frontend_tools
from .app import agui_app

__all__ = ["FrontendTools", "agui_app", "with_frontend_tools"]
