"""A conversation for providers that know two roles, which speak by turns: what Anthropic and Google have in common."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from ..messages import (
    AssistantMessage,
    Content,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    pair_calls_with_results,
    text_of,
)

Block: TypeAlias = dict[str, Any]
"""A piece of a turn in the provider's own form."""

GO_ON = "Go on."
"""What stands where a provider wants the user's words and there are none."""

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


class AlternatingTurns(ABC):
    """The turns, as far as they have come: what one role says in a row is one turn. `other` is the model's role."""

    def __init__(self, other: str, field: str) -> None:
        self._other = other
        self._field = field
        self._turns: list[Block] = []
        self._shown: list[Block] = []
        """Media that may not stand where they were made; they come with the next words of the user."""

    def take(self, messages: Sequence[Message]) -> list[str]:
        """Take the whole conversation; gives what the application says before all else."""
        told: list[str] = []
        for message in pair_calls_with_results(messages):
            if isinstance(message, SystemMessage) and not self._turns:
                told.append(text_of(message.content))
            elif isinstance(message, ToolMessage):
                self.result(message)
            elif isinstance(message, AssistantMessage):
                self.model(message)
            else:
                # In the middle few models know an application; with all of them it can speak as the user.
                self.user(message.content)
        return [text for text in told if text.strip()]

    def finished(self) -> list[Block]:
        """All of them; the first and the last are the user's."""
        if not self._turns or self._turns[-1]["role"] == self._other:
            self._add("user", [self.words(GO_ON)])
        return self._turns

    @abstractmethod
    def user(self, content: Content) -> None:
        """The user, or somebody in the user's place, says this."""

    @abstractmethod
    def model(self, message: AssistantMessage) -> None:
        """The model says this."""

    @abstractmethod
    def result(self, message: ToolMessage) -> None:
        """A tool has this to say."""

    @abstractmethod
    def words(self, text: str) -> Block:
        """Text in the provider's form."""

    def _show(self) -> None:
        """Let the user show what is waiting to be shown."""
        shown, self._shown = self._shown, []
        self._add("user", shown)

    def _add(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1][self._field] += blocks
        else:
            self._turns.append({"role": role, self._field: blocks})


def fitting_name(name: str) -> str:
    """The name of a tool in letters that a provider takes; a model may have made it up."""
    return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME]


def fitting_id(id: str) -> str:
    """The id of a call in letters that a provider takes."""
    return _NOT_IN_A_NAME.sub("_", id)


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object they must be; what a model wrote that is none, under a name of its own."""
    try:
        return msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {"arguments": call.arguments}


def value_in(url: str) -> tuple[str, str] | None:
    """Media type and base64 of a data url, which is a value in disguise; None for any other."""
    head, comma, data = url.partition(",")
    return (head[5:-7], data) if head.startswith("data:") and head.endswith(";base64") and comma else None
