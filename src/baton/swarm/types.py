"""What Swarm programs are written with. Unlike the core's agents these are mutable, as Swarm's are."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from pydantic import BaseModel

AgentFunction: TypeAlias = Callable[..., Any]
"""A function a model may call; it returns text, an Agent, a Result, or anything that `str` can show."""

_FROM_OPENAI = {
    "ChatCompletionMessage": "openai.types.chat",
    "ChatCompletionMessageToolCall": "openai.types.chat.chat_completion_message_tool_call",
    "Function": "openai.types.chat.chat_completion_message_tool_call",
}


class Agent(BaseModel):
    """Who speaks: a name, a model, instructions and functions. It may be changed at any time, also during a run."""

    name: str = "Agent"
    model: str = "gpt-4o"
    instructions: str | Callable[..., Any] = "You are a helpful agent."
    functions: list[AgentFunction] = []
    tool_choice: Any = None
    parallel_tool_calls: bool = True


class Response(BaseModel):
    """What a run came to: the new messages, who has the floor, and the context variables."""

    messages: list[dict[str, Any]] = []
    agent: Agent | None = None
    context_variables: dict[Any, Any] = {}


class Result(BaseModel):
    """What a function may return if text is not enough: a value, who takes over, and context variables to set."""

    value: str = ""
    agent: Agent | None = None
    context_variables: dict[Any, Any] = {}


def __getattr__(name: str) -> Any:
    # Swarm's module has these in it, and mock clients in tests import them from there.
    if name not in _FROM_OPENAI:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM_OPENAI[name]), name)
