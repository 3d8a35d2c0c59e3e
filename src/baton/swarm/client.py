"""A client with `chat.completions.create` as a model of the core."""

from collections.abc import AsyncIterator, Generator
from typing import Any

from ..errors import RunError
from ..messages import AssistantMessage, Data, ToolCall
from ..models import Chunk, ModelRequest, ModelResponse
from .exchange import SwarmRunState
from .types import Agent
from .util import debug_print, merge_chunk
from .wire import delta_of, message_of, tool_dict


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
