"""What is delivered while it happens and never logged."""

from typing import Any

from .base import Delta


class TextDelta(Delta, frozen=True, gc=False):
    """A piece of the text an agent's model is writing."""

    text: str


class ReasoningDelta(Delta, frozen=True, gc=False):
    """A piece of what a model thinks before it speaks."""

    text: str


class ToolCallDelta(Delta, frozen=True, gc=False):
    """A piece of a call a model is writing; `index` tells calls of one response apart."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class ProgressDelta(Delta, frozen=True, gc=False):
    """How far a tool or an agent has come; `total` may be unknown."""

    text: str = ""
    done: float | None = None
    total: float | None = None
    call_id: str = ""


class CustomDelta(Delta, frozen=True):
    """Whatever the application wants its listeners to see."""

    name: str
    data: Any = None
