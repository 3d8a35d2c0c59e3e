"""A client with `chat.completions.create` as a model of the core.

What one call of Swarm.run comes to, in Swarm's own terms: dicts of messages, live variables, who speaks.

It is the `context` of the run, and not its values: Swarm programs keep live objects among their variables, which no
log could hold. Nothing is lost by it, for this door has no store from which a run could be resumed. The messages are
here too, because they are sent as the caller wrote them, with fields that the core's messages do not have.
"""

import json
from collections.abc import AsyncIterator, Generator, Mapping
from copy import deepcopy
from typing import Any

from ..errors import RunError
from ..messages import AssistantMessage, Data, ToolCall
from ..models import Chunk, ModelRequest, ModelResponse
from ..tools import ToolResult
from .functions import delta_of, function_in, message_of, tool_dict
from .types import Agent, Response
from .util import debug_print, merge_chunk


class SwarmMaxTurnsError(RunError):
    """There are as many new messages as `max_turns` allows: the run stops where it is."""


class SwarmRunState:
    """The state of one run as Swarm's callers, functions and clients see it."""

    def __init__(
        self,
        messages: Any,
        context_variables: Any,
        *,
        model_override: str | None,
        stream: bool,
        debug: bool,
        max_turns: float,
        execute_tools: bool,
    ) -> None:
        self.messages: list[Any] = list(_copied(messages))
        self.variables: dict[Any, Any] = _copied(context_variables or {})
        self.agent: Agent | None = None
        self.model_override = model_override
        self.stream = stream
        self.debug = debug
        self._max_turns = max_turns
        self._executes_tools = execute_tools
        self._before = len(self.messages)
        self._answers = 0
        self._calls: dict[str, dict[str, Any]] = {}
        """The calls of the last answer as it has them, by the id that the core knows them by."""
        self._results: dict[str, str] = {}
        self._updates: dict[Any, Any] = {}
        self._returned: Agent | None = None

    def begin_turn(self, agent: Agent) -> None:
        """Close the turn before, and give this agent the next one. Raises SwarmMaxTurnsError if there is none left."""
        self._settle()
        self.agent = agent
        if len(self.messages) - self._before >= self._max_turns:
            debug_print(self.debug, "No turns left.")
            raise SwarmMaxTurnsError(f"{self._max_turns:g} new messages")

    def hear(self, message: dict[str, Any]) -> tuple[ToolCall, ...]:
        """Take in what the model said. The calls that are to be carried out."""
        debug_print(self.debug, "Received:", message)
        self.messages.append(message)
        self._answers += 1
        self._calls = {}
        made: list[ToolCall] = []
        for position, call in enumerate(message.get("tool_calls") or ()):
            call["id"] = call.get("id") or f"call_{self._answers}_{position}"
            if self._executes_tools:
                # Not the client's id: mocks give the same to every call, and the core wants each to have its own.
                id = f"{self._answers}.{position}"
                self._calls[id] = call
                made.append(ToolCall(id, _name_in(call), _arguments_in(call)))
        return tuple(made)

    @property
    def next_agent(self) -> Agent | None:
        """Who will have the next turn: the last agent that a function of this turn has returned, or the same again."""
        return self._returned or self.agent

    def note(self, id: str, outcome: ToolResult) -> None:
        """Keep what a call came to until its turn is over."""
        self._returned = outcome.transfer_to or self._returned
        self._results[id] = str(outcome.content)
        # As in Swarm, the other calls of the same turn do not see these yet.
        self._updates.update(outcome.values or {})

    def response(self) -> Response:
        """What the run has come to."""
        self._settle()
        return Response(messages=self.messages[self._before :], agent=self.agent, context_variables=self.variables)

    def _settle(self) -> None:
        for id, call in self._calls.items():
            name = _name_in(call)
            content = self._results.get(id, f"Error: Tool {name} not found.")
            debug_print(self.debug, f"Result of {name}:", content)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "tool_name": name, "content": content})
        self._calls, self._results, self._returned = {}, {}, None
        self.variables.update(self._updates)
        self._updates = {}


def _name_in(call: Mapping[str, Any]) -> str:
    return str(function_in(call).get("name") or "")


def _arguments_in(call: Mapping[str, Any]) -> str:
    given = function_in(call).get("arguments")
    return given if isinstance(given, str) else json.dumps(given or {})


def _copied(given: Any) -> Any:
    """A deep copy, so that the caller's own stays as it is; of what cannot be copied, the thing itself."""
    try:
        return deepcopy(given)
    except Exception:  # noqa: BLE001 - connections, locks and the like raise whatever they please
        if isinstance(given, dict):
            return {key: _copied(value) for key, value in given.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(given, list):
            return [_copied(item) for item in given]  # pyright: ignore[reportUnknownVariableType]
        return given


class SwarmClientError(RunError):
    """The client raised. What it raised goes on to the caller, who may know how to deal with it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class YieldItem:
    """Awaited, it gives an item to whoever steps the run, and goes on when they ask for the next one."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item

    def __await__(self) -> Generator[dict[str, Any], None, None]:
        yield self._item


class SwarmClientModel:
    """Asks the client in the name of one Swarm agent, with what that agent has in it at that moment."""

    def __init__(self, agent: Agent, exchange: SwarmRunState, *, client: Any) -> None:
        self._agent = agent
        self._exchange = exchange
        self._client = client

    @property
    def name(self) -> str:
        """The model that the client is asked for."""
        return self._exchange.model_override or self._agent.model

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The client's answer."""
        exchange = self._exchange
        try:
            completion = self._client.chat.completions.create(**self._parameters(request))
            message = await self._listened_to(completion) if exchange.stream else message_of(completion)
        except Exception as error:
            raise SwarmClientError(error) from error
        message["sender"] = self._agent.name
        yield ModelResponse(_as_core_message(message, exchange.hear(message)), model=self.name)

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        agent, exchange = self._agent, self._exchange
        messages = [{"role": "system", "content": request.instructions}, *exchange.messages]
        debug_print(exchange.debug, f"Asking {self.name} for {agent.name}:", messages)
        tools = [tool_dict(spec) for spec in request.tools]
        parameters = {
            "model": self.name,
            "messages": messages,
            "tools": tools or None,
            "tool_choice": agent.tool_choice,
            "stream": exchange.stream,
        }
        # OpenAI refuses this one if there are no tools.
        return {**parameters, "parallel_tool_calls": agent.parallel_tool_calls} if tools else parameters

    async def _listened_to(self, completion: Any) -> dict[str, Any]:
        calls: dict[int, dict[str, Any]] = {}
        message: dict[str, Any] = {"content": "", "role": "assistant", "function_call": None, "tool_calls": calls}
        is_first = True
        try:
            await YieldItem({"delim": "start"})
            for chunk in completion:
                delta = delta_of(chunk)
                if delta is None:
                    continue
                merge_chunk(message, delta)
                if is_first or delta.get("role") == "assistant":
                    delta["sender"] = self._agent.name
                is_first = False
                await YieldItem(delta)
            await YieldItem({"delim": "end"})
        finally:
            # Whoever leaves early leaves a connection open behind them.
            close = getattr(completion, "close", None)
            if callable(close):
                close()
        message["tool_calls"] = [calls[index] for index in sorted(calls)] or None
        return message


def _as_core_message(message: dict[str, Any], calls: tuple[ToolCall, ...]) -> AssistantMessage:
    content = message.get("content")
    if isinstance(content, str) and content:
        return AssistantMessage(content, calls)
    # To the core an answer of nothing is a failure. Here it is an answer, and so are calls that nobody carries out.
    return AssistantMessage("" if calls else (Data(None),), calls)
