"""A team as an MCP server: each tool of it is a run."""

from collections.abc import Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Any, cast

from ... import __version__
from ...agents import BaseAgent
from ...errors import AnswerError, SetupError
from ...handoffs import tool_name_for
from ...models import Model
from ...runner import Runner
from ...stores import Store

try:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext
    from mcp.shared.exceptions import MCPError

    from .calls import ToolCallHandler, error_result
except ImportError as error:
    raise SetupError("MCP needs its library: pip install 'baton-adk[mcp]'") from error

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ..http import AuthLike

logger = getLogger("baton.mcp")

ANSWER_TOOL = "answer_run"

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"request": {"type": "string", "description": "What should be done, with all that is to be known."}},
    "required": ["request"],
    "additionalProperties": False,
}
_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "The run that waits."},
        "answers": {"description": "The answers, by the id of the question; or the answer, if only one is open."},
    },
    "required": ["run_id", "answers"],
    "additionalProperties": False,
}


def mcp_server(
    target: "BaseAgent[Any, Any] | Runner[Any, Any]",
    *,
    tool_per_agent: bool = False,
    model: Model | str | None = None,
    store: "Store | str | None" = None,
) -> "Server[Any]":
    """A team as a server of the `mcp` library: its root is a tool, or with `each` every agent is one.

    Runs that ask something ask the client's user; if the client cannot do that, the result says what is open, and
    another tool takes the answers.
    """
    runners = _runners(target, each=tool_per_agent, model=model, store=store)
    calls = ToolCallHandler(runners, answer_tool=ANSWER_TOOL)
    tools = [_tool(name, runner) for name, runner in runners.items()]
    tools.append(
        types.Tool(
            name=ANSWER_TOOL,
            description="Answer what a run of one of the other tools waits for, and go on with that run.",
            input_schema=_ANSWER_SCHEMA,
        )
    )

    async def list_tools(
        ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            return await calls.made(ctx, params)
        except AnswerError as error:
            return error_result(str(error))
        except MCPError:
            raise
        except Exception as error:
            # What it says may be nobody's business but that of whoever runs the team.
            logger.exception("a call of `%s` failed", params.name)
            return error_result(f"the run failed: {type(error).__name__}")

    root = next(iter(runners.values())).team.root
    return Server(f"baton {root}", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def mcp_app(
    target: "BaseAgent[Any, Any] | Runner[Any, Any]",
    *,
    tool_per_agent: bool = False,
    model: Model | str | None = None,
    store: "Store | str | None" = None,
    auth: "AuthLike | None" = None,
    host: str = "127.0.0.1",
    path: str = "/mcp",
) -> "Starlette":
    """The same as an ASGI app that speaks streamable HTTP at `path`; `host` is where it will be served.

    `auth` says who may call, as for `baton.server.api_app`; runs then belong to whoever asked for them.
    """
    server = mcp_server(target, tool_per_agent=tool_per_agent, model=model, store=store)
    app = server.streamable_http_app(host=host, streamable_http_path=path)
    if auth is not None:
        from ..http.door import RequestGuard
        from ..http.guard import AuthMiddleware

        app.add_middleware(AuthMiddleware, door=RequestGuard(auth))
    return app


def _runners(
    team: Any, *, each: bool, model: Model | str | None, store: "Store | str | None"
) -> dict[str, Runner[Any, Any]]:
    """A runner for each tool, by the tool's name."""
    if isinstance(team, Runner):
        if each or model is not None or store is not None:
            raise SetupError("a Runner has its root, its model and its store; give the agent to say these here")
        runner = cast("Runner[Any, Any]", team)
        return {tool_name_for(runner.team.root): runner}
    root = Runner(team, model=model, store=store)
    agents: Sequence[Any] = [seat.agent for seat in root.team.seats.values()] if each else [team]
    runners: dict[str, Runner[Any, Any]] = {}
    for agent in agents:
        name = tool_name_for(agent.name)
        if name in runners or name == ANSWER_TOOL:
            raise SetupError(f"two tools would be called `{name}`; give `{agent.name}` another name")
        runners[name] = root if agent is team else Runner(agent, model=model, store=store)
    return runners


def _tool(name: str, runner: Runner[Any, Any]) -> types.Tool:
    agent = runner.team.seats[runner.team.root].agent
    described = agent.description or f"Ask {agent.name}."
    return types.Tool(name=name, title=agent.name, description=described, input_schema=_REQUEST_SCHEMA)
