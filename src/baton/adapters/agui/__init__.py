"""AG-UI: a team behind a user interface that speaks the Agent-User Interaction Protocol, version 1.0.

May import runner and what is below it, `adapters.http`, and, when an app is made, `ag_ui` and Starlette. Must not drive
runs: it starts and hears them through a hub, and translates.
"""

from .app import serve_agui
from .frontend import FrontendTools, frontend_tools

__all__ = ["FrontendTools", "frontend_tools", "serve_agui"]
