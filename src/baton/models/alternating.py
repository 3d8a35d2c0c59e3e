"""History for providers with two roles that alternate: Anthropic and Google."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage, pair_calls_with_results, text_of
from .encoding import Block

CONTINUE = "Go on."
"""Text of the user turn that a provider requires where the user said nothing."""


class AlternatingTurns(ABC):
    """Builds turns in which consecutive messages of one role are merged.

    Args:
        model_role: The provider's name for the model's role.
        field: The field that holds the blocks of a turn.
        text_block: Returns text in the provider's format.
    """

    def __init__(self, model_role: str, field: str, text_block: Callable[[str], Block]) -> None:
        self._model_role = model_role
        self._field = field
        self._text_block = text_block
        self._turns: list[Block] = []
        self._pending_media: list[Block] = []
        """Media that may not stand where it was produced; it is sent with the next user turn."""

    def convert(self, messages: Sequence[Message], *, is_request: bool = True) -> tuple[list[str], list[Block]]:
        """Return the leading system texts and the turns, of which the first and last are the user's.

        Args:
            messages: The conversation.
            is_request: Whether the model is to respond; otherwise the last turn may be the model's.
        """
        system: list[str] = []
        for message in pair_calls_with_results(messages):
            if isinstance(message, SystemMessage) and not self._turns:
                system.append(text_of(message.content))
            elif isinstance(message, ToolMessage):
                self.add_result(message)
            elif isinstance(message, AssistantMessage):
                self.add_response(message)
            else:
                # Few models accept a system message in the middle; all of them accept a user message.
                self.add_user(message.content)
        self.finish()
        if is_request and (not self._turns or self._turns[-1]["role"] == self._model_role):
            self._add("user", [self._text_block(CONTINUE)])
        return [text for text in system if text.strip()], self._turns

    def finish(self) -> None:
        """Add the pending media after the last message."""
        self._add_pending_media()

    @abstractmethod
    def add_user(self, content: Content) -> None:
        """Add a user message."""

    @abstractmethod
    def add_response(self, message: AssistantMessage) -> None:
        """Add a model's message."""

    @abstractmethod
    def add_result(self, message: ToolMessage) -> None:
        """Add a tool result."""

    def _add_pending_media(self) -> None:
        media, self._pending_media = self._pending_media, []
        self._add("user", media)

    def _add(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1][self._field] += blocks
        else:
            self._turns.append({"role": role, self._field: blocks})
