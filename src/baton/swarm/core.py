"""Swarm itself: what its callers say, as a run of the core.

Swarm's agents as agents of the core, made anew whenever their functions have changed.
"""

import sys
from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from importlib import import_module
from inspect import signature
from math import inf
from typing import Any, Literal, overload

from msgspec import Struct
from msgspec.structs import replace

from .. import agents as core
from ..context import Limits, RunContext
from ..errors import SetupError
from ..messages import ToolSpec
from ..runner import Runner
from ..tools import Tool, ToolResult
from .client import SwarmClientError, SwarmClientModel, SwarmMaxTurnsError, SwarmRunState
from .functions import as_tool, awaited, name_of
from .types import Agent, AgentFunction, Response
from .util import debug_print


class _SwarmMember(Struct, frozen=True):
    """A Swarm agent, the functions it had when it was looked at, and what was made of it then."""

    agent: Agent
    functions: tuple[AgentFunction, ...]
    made: core.Agent[SwarmRunState]


class SwarmTeam:
    """All agents that have a part in one run."""

    def __init__(self, exchange: SwarmRunState, *, client: Any) -> None:
        self.exchange = exchange
        self._client = client
        # By identity: many Swarm agents have the same name, and those that can be changed have no hash.
        self._members: dict[int, _SwarmMember] = {}

    def member(self, agent: Agent) -> core.Agent[SwarmRunState]:
        """The agent as the core knows it."""
        if self.has_changed(agent):
            self._members[id(agent)] = _SwarmMember(agent, tuple(agent.functions), self._made(agent))
        return self._members[id(agent)].made

    def has_changed(self, agent: Agent) -> bool:
        """Whether the core does not know the agent as it is now."""
        known = self._members.get(id(agent))
        return known is None or [*map(id, known.functions)] != [*map(id, agent.functions)]

    def _made(self, agent: Agent) -> core.Agent[SwarmRunState]:
        # As in Swarm, of several functions with one name the last one counts.
        functions = {name_of(function): function for function in agent.functions}
        return core.Agent(
            agent.name.strip() or "Agent",
            instructions=lambda ctx: self._instructions(agent),
            model=SwarmClientModel(agent, self.exchange, client=self._client),
            tools=[_SwarmTool(as_tool(function), cast=self) for function in functions.values()],
            concurrent_tools=False,
            # Swarm counts messages, for all agents together: the exchange does that.
            max_turns=sys.maxsize,
        )

    def _instructions(self, agent: Agent) -> str:
        # The first thing the core wants of an agent in each of its turns, so this is where a turn begins.
        self.exchange.begin_turn(agent)
        wanted = agent.instructions
        if not callable(wanted):
            return wanted
        variables = defaultdict(str, self.exchange.variables)
        return awaited(wanted(variables) if _takes_variables(wanted) else wanted())


class _SwarmTool:
    """A tool that tells the exchange what it came to, and names agents as the core knows them."""

    def __init__(self, tool: Tool, *, cast: SwarmTeam) -> None:
        self._tool = tool
        self._cast = cast

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return self._tool.spec

    async def call(self, ctx: RunContext[SwarmRunState], arguments: str) -> ToolResult:
        """Call the function."""
        exchange = ctx.context
        debug_print(exchange.debug, f"Calling {self.spec.name} with {arguments}")
        outcome = await self._tool.call(ctx, arguments)
        exchange.note(ctx.tool_call.id if ctx.tool_call is not None else "", outcome)
        target: Agent | None = outcome.transfer_to
        following = exchange.next_agent
        if target is None and following is not None and self._cast.has_changed(following):
            # The function has given whoever goes next other functions. Only by a transfer does the core get to know.
            target = following
        return replace(outcome, transfer_to=None if target is None else self._cast.member(target), values=None)


def _takes_variables(instructions: Any) -> bool:
    try:
        signature(instructions).bind({})
    except TypeError:
        return False
    except ValueError:
        return True  # Some callables in C have no signature to look at.
    return True


_UNLIMITED = Limits(model_calls=None, transfers=None, idle_cycles=None)
_INSIDE = ("get_chat_completion", "handle_function_result", "handle_tool_calls")
_NOTHING_MORE = object()


class Swarm:
    """Runs agents with any client that has `chat.completions.create`; without one, with OpenAI's."""

    def __init__(self, client: Any = None) -> None:
        self._client = client

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _INSIDE:
            if name in vars(cls):
                raise SetupError(
                    f"`{cls.__name__}` overrides `{name}`, which is never called here: the core asks models and calls "
                    "functions. Give Swarm(client=…) an object whose chat.completions.create does what you want"
                )

    @property
    def client(self) -> Any:
        """Who is asked for completions."""
        if self._client is None:
            self._client = _openai_client()
        return self._client

    @client.setter
    def client(self, client: Any) -> None:
        self._client = client

    @overload
    def run(
        self,
        agent: Agent | None,
        messages: list[Any],
        context_variables: dict[Any, Any] | None = None,
        model_override: str | None = None,
        stream: Literal[False] = False,
        debug: bool = False,
        max_turns: float = inf,
        execute_tools: bool = True,
    ) -> Response: ...
    @overload
    def run(
        self,
        agent: Agent | None,
        messages: list[Any],
        context_variables: dict[Any, Any] | None = None,
        model_override: str | None = None,
        *,
        stream: Literal[True],
        debug: bool = False,
        max_turns: float = inf,
        execute_tools: bool = True,
    ) -> Iterator[dict[str, Any]]: ...
    def run(
        self,
        agent: Agent | None,
        messages: list[Any],
        context_variables: dict[Any, Any] | None = None,
        model_override: str | None = None,
        stream: bool = False,
        debug: bool = False,
        max_turns: float = inf,
        execute_tools: bool = True,
    ) -> Any:
        """What the agents have to say, until one answers without a call. With `stream`, piece by piece."""
        given = (agent, messages, context_variables, model_override, debug, max_turns, execute_tools)
        if stream:
            return self.run_and_stream(*given)
        *_, response = self._items(*given, stream=False)
        return response["response"]

    def run_and_stream(
        self,
        agent: Agent | None,
        messages: list[Any],
        context_variables: dict[Any, Any] | None = None,
        model_override: str | None = None,
        debug: bool = False,
        max_turns: float = inf,
        execute_tools: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """The deltas of each answer between `{"delim": "start"}` and `{"delim": "end"}`, then `{"response": …}`."""
        given = (agent, messages, context_variables, model_override, debug, max_turns, execute_tools)
        return self._items(*given, stream=True)

    def _items(
        self,
        agent: Agent | None,
        messages: list[Any],
        context_variables: dict[Any, Any] | None,
        model_override: str | None,
        debug: bool,
        max_turns: float,
        execute_tools: bool,
        *,
        stream: bool,
    ) -> Iterator[dict[str, Any]]:
        exchange = SwarmRunState(
            messages,
            context_variables,
            model_override=model_override,
            stream=stream,
            debug=debug,
            max_turns=max_turns,
            execute_tools=execute_tools,
        )
        if agent is not None:
            runner = Runner(
                SwarmTeam(exchange, client=self.client).member(agent),
                limits=_UNLIMITED,
                history="verbatim",
                multiple_transfers="last",
                max_corrections=sys.maxsize,
            )
            # What was said before is in the exchange, in dicts that need not fit the core's messages.
            live = runner.stream([], context=exchange)
            yield from _stepped(live._drive())
            if live.result.status == "suspended":
                raise SetupError("a function asked a question, and Swarm has nobody to answer it; use baton.Runner")
        yield {"response": exchange.response()}


def _stepped(drive: Coroutine[dict[str, Any], None, None]) -> Iterator[dict[str, Any]]:
    """What the run shows on its way, each item when it is asked for.

    The run is stepped by hand and not by an event loop: clients and functions are sync here, so there is nothing to
    wait for. They run where the caller is, in the same thread, in a notebook too, and may use asyncio.run themselves.
    """
    failure: Exception | None = None
    try:
        while (item := _next_of(drive)) is not _NOTHING_MORE:
            try:
                yield item
            except BaseException:
                # Whoever listened has gone: the run is cancelled, as the core's own runs are then.
                with suppress(CancelledError):
                    drive.throw(CancelledError())
                raise
    except SwarmMaxTurnsError:
        pass
    except SwarmClientError as failed:
        failure = failed.error
    # Raised here, where nothing else is being handled, so that it looks as it did when it left the client.
    if failure is not None:
        raise failure


def _next_of(drive: Coroutine[dict[str, Any], None, None]) -> Any:
    try:
        return drive.send(None)
    except StopIteration:
        return _NOTHING_MORE


def _openai_client() -> Any:
    try:
        openai: Any = import_module("openai")
    except ImportError as error:
        raise SetupError(
            "Swarm() without a client asks OpenAI, and its package is not installed; run `pip install openai`, "
            "or give Swarm(client=…) anything that has chat.completions.create"
        ) from error
    return openai.OpenAI()
