"""The team that the official conformance kit of MCP looks at as a server."""

from baton import Agent
from baton.testing import ScriptedModel

desk = Agent("Desk", description="Helps.", model=ScriptedModel(["At your service."], cycle=True))
