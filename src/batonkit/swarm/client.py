"""The state of one Swarm run, and a model that calls a client with `chat.completions.create`.

The state is the run's context and not its values, because Swarm programs keep live objects among their variables. It
holds the messages too: they are sent as the caller wrote them, with fields that Baton's messages do not have.
"""

import json
from collections.abc import AsyncIterator, Generator, Mapping
from copy import deepcopy
from types import coroutine
from typing import Any

from ..errors import RunError
from ..messages import AssistantMessage, Data, ToolCall
from ..models import Chunk, ModelRequest, ModelResponse
from ..tools import ToolResult
from .functions import delta_of, function_in, message_of, tool_dict
from .types import Agent, Response
from .util import debug_print, merge_chunk


class SwarmMaxTurnsError(RunError):
    """The run has produced as many messages as `max_turns` allows."""


class SwarmRunState:
    """The state of one run: message dicts, context variables and the active agent."""

    def __init__(
        self,
        messages: Any,
        context_variables: Any,
        model_override: str | None,
        debug: bool,
        max_turns: float,
        execute_tools: bool,
        *,
        stream: bool,
    ) -> None:
        self.messages: list[Any] = list(_copy(messages))
        self.variables: dict[Any, Any] = _copy(context_variables or {})
        self.agent: Agent | None = None
        self.model_override = model_override
        self.stream = stream
        self.debug = debug
        self._max_turns = max_turns
        self._executes_tools = execute_tools
        self._before = len(self.messages)
        self._answers = 0
        self._calls: dict[str, dict[str, Any]] = {}
        """The calls of the last response in Swarm's form, by their ids in Baton."""
        self._results: dict[str, str] = {}
        self._updates: dict[Any, Any] = {}
        self._returned: Agent | None = None

    def begin_turn(self, agent: Agent) -> None:
        """Start a turn of this agent. Raises SwarmMaxTurnsError if none is left."""
        self._close_turn()
        self.agent = agent
        if len(self.messages) - self._before >= self._max_turns:
            debug_print(self.debug, "No turns left.")
            raise SwarmMaxTurnsError(f"{self._max_turns:g} new messages")

    def add_response(self, message: dict[str, Any]) -> tuple[ToolCall, ...]:
        """Add the model's message; return the calls to execute."""
        debug_print(self.debug, "Received:", message)
        self.messages.append(message)
        self._answers += 1
        self._calls = {}
        made: list[ToolCall] = []
        for position, call in enumerate(message.get("tool_calls") or ()):
            call["id"] = call.get("id") or f"call_{self._answers}_{position}"
            if self._executes_tools:
                # Not the client's id: mocks use one id for every call, and Baton needs unique ids.
                id = f"{self._answers}.{position}"
                self._calls[id] = call
                made.append(ToolCall(id, _call_name(call), _call_arguments(call)))
        return tuple(made)

    @property
    def next_agent(self) -> Agent | None:
        """The agent of the next turn: the last one that a function returned, else the current one."""
        return self._returned or self.agent

    def add_result(self, id: str, outcome: ToolResult) -> None:
        """Store the result of a call until the end of the turn."""
        self._returned = outcome.transfer_to or self._returned
        self._results[id] = str(outcome.content)
        # As in Swarm, other calls of the same turn do not see these yet.
        self._updates.update(outcome.values or {})

    def response(self) -> Response:
        """Return the run's response."""
        self._close_turn()
        return Response(messages=self.messages[self._before :], agent=self.agent, context_variables=self.variables)

    def _close_turn(self) -> None:
        for id, call in self._calls.items():
            name = _call_name(call)
            content = self._results.get(id, f"Error: Tool {name} not found.")
            debug_print(self.debug, f"Result of {name}:", content)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "tool_name": name, "content": content})
        self._calls = {}
        self._results = {}
        self._returned = None
        self.variables.update(self._updates)
        self._updates = {}


def _call_name(call: Mapping[str, Any]) -> str:
    return str(function_in(call).get("name") or "")


def _call_arguments(call: Mapping[str, Any]) -> str:
    given = function_in(call).get("arguments")
    return given if isinstance(given, str) else json.dumps(given or {})


def _copy(value: Any) -> Any:
    """Copy deeply, so that the caller's object is not changed; keep what cannot be copied."""
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - connections, locks and the like raise errors of any type
        if isinstance(value, dict):
            return {key: _copy(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return [_copy(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return value


class SwarmClientError(RunError):
    """The client raised an error, which is raised again to the caller of Swarm."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@coroutine
def yield_item(item: dict[str, Any]) -> Generator[dict[str, Any]]:
    """Yield an item to the code that steps the run."""
    yield item


class SwarmClientModel:
    """A model that calls the client for one Swarm agent, with the agent's current attributes."""

    def __init__(self, agent: Agent, state: SwarmRunState, *, client: Any) -> None:
        self._agent = agent
        self._state = state
        self._client = client

    @property
    def name(self) -> str:
        """The model to request from the client."""
        return self._state.model_override or self._agent.model

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Yield the client's response."""
        state = self._state
        try:
            completion = self._client.chat.completions.create(**self._parameters(request))
            message = await self._read_stream(completion) if state.stream else message_of(completion)
        except Exception as error:
            raise SwarmClientError(error) from error
        message["sender"] = self._agent.name
        yield ModelResponse(_to_message(message, state.add_response(message)), model=self.name)

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        agent = self._agent
        state = self._state
        messages = [{"role": "system", "content": request.instructions}, *state.messages]
        debug_print(state.debug, f"Asking {self.name} for {agent.name}:", messages)
        tools = [tool_dict(spec) for spec in request.tools]
        parameters = {
            "model": self.name,
            "messages": messages,
            "tools": tools or None,
            "tool_choice": agent.tool_choice,
            "stream": state.stream,
        }
        # OpenAI rejects this parameter without tools.
        return {**parameters, "parallel_tool_calls": agent.parallel_tool_calls} if tools else parameters

    async def _read_stream(self, completion: Any) -> dict[str, Any]:
        calls: dict[int, dict[str, Any]] = {}
        message: dict[str, Any] = {"content": "", "role": "assistant", "function_call": None, "tool_calls": calls}
        is_first = True
        try:
            await yield_item({"delim": "start"})
            for chunk in completion:
                delta = delta_of(chunk)
                if delta is None:
                    continue
                merge_chunk(message, delta)
                if is_first or delta.get("role") == "assistant":
                    delta["sender"] = self._agent.name
                is_first = False
                await yield_item(delta)
            await yield_item({"delim": "end"})
        finally:
            # A reader that stops early would leave the connection open.
            close = getattr(completion, "close", None)
            if callable(close):
                close()
        message["tool_calls"] = [calls[index] for index in sorted(calls)] or None
        return message


def _to_message(message: dict[str, Any], calls: tuple[ToolCall, ...]) -> AssistantMessage:
    content = message.get("content")
    if isinstance(content, str) and content:
        return AssistantMessage(content, calls)
    # Baton treats an empty response as an error; Swarm accepts it, also with calls that are not executed.
    return AssistantMessage("" if calls else (Data(None),), calls)
