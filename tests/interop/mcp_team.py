"""The team that the official conformance kit of MCP looks at as a server."""

from batonkit import Agent
from batonkit.testing import ScriptedModel

desk = Agent("Desk", description="Helps.", model=ScriptedModel(["At your service."], cycle=True))
