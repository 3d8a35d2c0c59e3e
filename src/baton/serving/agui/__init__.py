"""AG-UI: a team behind a user interface that speaks the Agent-User Interaction Protocol, version 1.0.

May import runner and what is below it, `adapters.http`, and, when an app is made, `ag_ui` and Starlette. Must not drive
runs: it starts and hears them through a hub, and translates.
"""

from .app import agui_app
from .frontend import FrontendTools, with_frontend_tools

__all__ = ["FrontendTools", "agui_app", "with_frontend_tools"]
