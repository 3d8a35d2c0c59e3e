"""The client that the official conformance kit of MCP starts and looks at: an agent whose tools are the kit's server's.

The kit says in the environment which scenario it plays and what the client is to know, and gives the server's address.
"""

import asyncio
import json
import os
import sys
from typing import Any, cast

from baton import Agent, Runner
from baton.adapters import MCPServer
from baton.messages import ToolMessage, ToolSpec
from baton.models import ModelRequest
from baton.runner import Interrupt
from baton.testing import ScriptedModel, call

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


def _example(schema: dict[str, Any]) -> Any:
    """Something that fits the schema, as far as the kit's tools need it."""
    if "default" in schema:
        return schema["default"]
    match schema.get("type"):
        case "object":
            properties: dict[str, Any] = schema.get("properties", {})
            return {name: _example(properties[name]) for name in schema.get("required", ())}
        case "integer" | "number":
            return 5
        case "boolean":
            return True
        case "array":
            return []
        case _:
            return "example"


def _calls(tools: "tuple[ToolSpec, ...]") -> list[Any]:
    """The calls the scenario wants: those it names, or one of each tool."""
    if "toolCalls" in CONTEXT:
        return [call(wanted["name"], **wanted["arguments"]) for wanted in CONTEXT["toolCalls"]]
    schemas = {tool.name: tool.parameters for tool in tools}
    given = {name: _example(schema) for name, schema in schemas.items()}
    if "json_schema_echo" in given:
        given["json_schema_echo"] = {"schema": schemas["json_schema_2020_12_tool"]}
    return [call(name, **arguments) for name, arguments in given.items()]


def _step(request: ModelRequest) -> Any:
    """One call after the other, then an end."""
    wanted = _calls(tuple(request.tools))
    made = sum(isinstance(message, ToolMessage) for message in request.messages)
    return wanted[made] if made < len(wanted) else "done"


def _answer(question: Interrupt) -> Any:
    """What a person would say: nothing beyond what the form has already."""
    return {}


async def main(url: str) -> int:
    """Play the scenario; the exit code."""
    server = MCPServer(url)
    runner = Runner(Agent("Client", tools=[server], model=ScriptedModel([_step], cycle=True)))
    result = await runner.run("Go.")
    while result.status == "suspended":
        result = await runner.resume(result.run_id, {asked.id: _answer(asked) for asked in result.interrupts})
    for message in result.messages:
        if isinstance(message, ToolMessage):
            print(f"{message.name}: {cast('object', message.content)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
