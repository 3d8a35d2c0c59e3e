"""Swarm's Agent, Response and Result. Unlike Baton's agents they are mutable, as in Swarm."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from pydantic import BaseModel

# Without the types of OpenAI, so that `import *` works where its SDK is not installed.
__all__ = ["Agent", "AgentFunction", "Response", "Result"]

AgentFunction: TypeAlias = Callable[..., Any]
"""A function that a model may call; it returns text, an Agent, a Result or any object with `str`."""

_FROM_OPENAI = {
    "ChatCompletionMessage": "openai.types.chat",
    "ChatCompletionMessageToolCall": "openai.types.chat.chat_completion_message_tool_call",
    "Function": "openai.types.chat.chat_completion_message_tool_call",
}


class Agent(BaseModel):
    """A Swarm agent. It may be changed at any time, also during a run.

    Args:
        name: The agent's name.
        model: The model to request from the client.
        instructions: The system prompt, or a function that returns it, with or without `context_variables`.
        functions: The functions that the model may call.
        tool_choice: OpenAI's `tool_choice`.
        parallel_tool_calls: Whether the model may call several functions at once.
    """

    name: str = "Agent"
    model: str = "gpt-4o"
    instructions: str | Callable[..., Any] = "You are a helpful agent."
    functions: list[AgentFunction] = []
    tool_choice: Any = None
    parallel_tool_calls: bool = True


class Response(BaseModel):
    """The result of a run.

    Args:
        messages: The new messages.
        agent: The active agent at the end.
        context_variables: The variables at the end.
    """

    messages: list[dict[str, Any]] = []
    agent: Agent | None = None
    context_variables: dict[Any, Any] = {}


class Result(BaseModel):
    """A result of a function with more than text.

    Args:
        value: The text for the model.
        agent: The agent to transfer to.
        context_variables: The variables to set.
    """

    value: str = ""
    agent: Agent | None = None
    context_variables: dict[Any, Any] = {}


def __getattr__(name: str) -> Any:
    # Swarm's module exports these, and mock clients in tests import them from there.
    if name not in _FROM_OPENAI:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM_OPENAI[name]), name)
