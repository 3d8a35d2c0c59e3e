"""Swarm, and the conversion of its agents and functions to those of Baton."""

import sys
from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from inspect import signature
from math import inf
from typing import Any, Literal, overload

from msgspec import Struct
from msgspec.structs import replace

from .. import agents as core
from ..context import Limits, RunContext
from ..errors import MissingExtraError, SetupError
from ..messages import ToolSpec
from ..runs import HandoffRules, Runner, RunStream
from ..tools import Tool, ToolResult
from .client import SwarmClientError, SwarmClientModel, SwarmMaxTurnsError, SwarmRunState
from .functions import as_tool, function_name, run_awaitable
from .types import Agent, AgentFunction, Response
from .util import debug_print


class _SwarmMember(Struct, frozen=True):
    """A Swarm agent, its functions at the time of conversion and the converted agent."""

    agent: Agent
    functions: tuple[AgentFunction, ...]
    converted: core.Agent[SwarmRunState]


class SwarmTeam:
    """The agents of one run, converted again whenever their functions change."""

    def __init__(self, state: SwarmRunState, *, client: Any) -> None:
        self.state = state
        self._client = client
        # By identity: Swarm agents may share a name, and mutable ones have no hash.
        self._members: dict[int, _SwarmMember] = {}

    def member(self, agent: Agent) -> core.Agent[SwarmRunState]:
        """Return the converted agent."""
        if self.has_changed(agent):
            self._members[id(agent)] = _SwarmMember(agent, tuple(agent.functions), self._convert(agent))
        return self._members[id(agent)].converted

    def has_changed(self, agent: Agent) -> bool:
        """Check whether the agent's functions have changed since its conversion."""
        member = self._members.get(id(agent))
        return member is None or [*map(id, member.functions)] != [*map(id, agent.functions)]

    def _convert(self, agent: Agent) -> core.Agent[SwarmRunState]:
        # As in Swarm, the last of several functions with one name is used.
        functions = {function_name(function): function for function in agent.functions}
        return core.Agent(
            agent.name.strip() or "Agent",
            instructions=lambda ctx: self._instructions(agent),
            model=SwarmClientModel(agent, self.state, client=self._client),
            tools=[_SwarmTool(as_tool(function), team=self) for function in functions.values()],
            concurrent_tools=False,
            # Swarm limits the messages of all agents together, which the state counts.
            max_turns=sys.maxsize,
        )

    def _instructions(self, agent: Agent) -> str:
        # Baton reads the instructions first in each turn, so a turn starts here.
        self.state.begin_turn(agent)
        instructions = agent.instructions
        if not callable(instructions):
            return instructions
        variables = defaultdict(str, self.state.variables)
        return run_awaitable(instructions(variables) if _takes_variables(instructions) else instructions())


class _SwarmTool:
    """A tool that stores its result in the state and returns converted agents."""

    def __init__(self, tool: Tool, *, team: SwarmTeam) -> None:
        self._tool = tool
        self._team = team

    @property
    def spec(self) -> ToolSpec:
        """The tool's specification."""
        return self._tool.spec

    async def call(self, ctx: RunContext[SwarmRunState], arguments: str) -> ToolResult:
        """Call the function and store its result."""
        state = ctx.context
        debug_print(state.debug, f"Calling {self.spec.name} with {arguments}")
        outcome = await self._tool.call(ctx, arguments)
        state.add_result(ctx.tool_call.id if ctx.tool_call is not None else "", outcome)
        target: Agent | None = outcome.transfer_to
        following = state.next_agent
        if target is None and following is not None and self._team.has_changed(following):
            # The function changed the functions of the next agent, which only a transfer makes known.
            target = following
        return replace(outcome, transfer_to=None if target is None else self._team.member(target), values=None)


def _takes_variables(instructions: Any) -> bool:
    try:
        signature(instructions).bind({})
    except TypeError:
        return False
    except ValueError:
        return True  # Some callables in C have no signature to look at.
    return True


_UNLIMITED = Limits(model_calls=None, transfers=None, idle_cycles=None)
_INTERNAL_METHODS = ("get_chat_completion", "handle_function_result", "handle_tool_calls")


class Swarm:
    """Runs Swarm agents.

    Args:
        client: Any object with `chat.completions.create`; by default OpenAI's client.
    """

    def __init__(self, client: Any = None) -> None:
        if client is not None:
            self.client = client

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _INTERNAL_METHODS:
            if name in vars(cls):
                raise SetupError(
                    f"`{cls.__name__}` overrides `{name}`, which is never called here: Baton calls models and "
                    "functions itself. Pass Swarm(client=…) an object with your own chat.completions.create"
                )

    @cached_property
    def client(self) -> Any:
        """The client that is called for completions."""
        try:
            openai: Any = import_module("openai")
        except ImportError as error:
            raise MissingExtraError("Swarm() without client=…", "openai-sdk", error) from error
        return openai.OpenAI()

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
        """Run agents until one responds without a tool call.

        Args:
            agent: The first agent; None returns an empty response.
            messages: The conversation so far, as dicts.
            context_variables: Variables for functions and instructions.
            model_override: A model to use instead of the agents' own.
            stream: Whether to return an iterator of deltas, as `run_and_stream` does.
            debug: Whether to print each step.
            max_turns: The maximum number of new messages.
            execute_tools: Whether to call functions; if not, the run ends at the first call.

        Returns:
            The response, or an iterator of dicts with `stream`.
        """
        arguments = (messages, context_variables, model_override, debug, max_turns, execute_tools)
        if stream:
            return self.run_and_stream(agent, *arguments)
        *_, response = self._items(agent, partial(SwarmRunState, *arguments, stream=False))
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
        """Stream deltas between `{"delim": "start"}` and `{"delim": "end"}`, then `{"response": …}`.

        Args:
            agent: The first agent; None returns an empty response.
            messages: The conversation so far, as dicts.
            context_variables: Variables for functions and instructions.
            model_override: A model to use instead of the agents' own.
            debug: Whether to print each step.
            max_turns: The maximum number of new messages.
            execute_tools: Whether to call functions; if not, the run ends at the first call.
        """
        arguments = (messages, context_variables, model_override, debug, max_turns, execute_tools)
        return self._items(agent, partial(SwarmRunState, *arguments, stream=True))

    def _items(self, agent: Agent | None, new_state: Callable[[], SwarmRunState]) -> Iterator[dict[str, Any]]:
        # Created with the first item: a stream that is never read copies nothing.
        state = new_state()
        if agent is not None:
            runner = Runner(
                SwarmTeam(state, client=self.client).member(agent),
                limits=_UNLIMITED,
                history="verbatim",
                handoff_rules=HandoffRules(multiple_transfers="last", max_corrections=sys.maxsize),
            )
            # The messages are in the state, as dicts that need not fit Baton's messages.
            live = runner.stream([], context=state)
            yield from _step(live)
            if live.result.status == "suspended":
                raise SetupError("a function asked a question, which Swarm cannot answer; use batonkit.Runner")
        yield {"response": state.response()}


def _step(live: RunStream[Any]) -> Iterator[dict[str, Any]]:
    """Yield the items of the run, each on request.

    The coroutine is stepped without an event loop: clients and functions are synchronous, run in the caller's
    thread, also in a notebook, and may call asyncio.run themselves.
    """
    drive: Coroutine[dict[str, Any], None, None] = live._drive()
    failure: Exception | None = None
    try:
        while True:
            item = drive.send(None)
            try:
                yield item
            except BaseException:
                # The reader has stopped, so the run is cancelled.
                live._flow.run.signals.stop = "now"
                with suppress(CancelledError):
                    drive.throw(CancelledError())
                raise
    except (StopIteration, SwarmMaxTurnsError):
        pass
    except SwarmClientError as failed:
        failure = failed.error
    # Raised outside of the handler, so that the error has no context of ours.
    if failure is not None:
        raise failure
