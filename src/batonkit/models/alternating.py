"""History for providers with two roles that alternate: Anthropic and Google."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar, cast

from ..log.view import MessageWindow
from ..messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage, pair_calls_with_results, text_of
from ..messages.messages import PairingCheck
from .encoding import Block

CONTINUE = "Go on."
"""Text of the user turn that a provider requires where the user said nothing."""


class AlternatingTurns(ABC):
    """Builds turns in which consecutive messages of one role are merged."""

    def __init__(self, model_role: str, field: str, text_block: Callable[[str], Block]) -> None:
        self._model_role = model_role
        self._field = field
        self._text_block = text_block
        self._pairing = PairingCheck()
        self._turns: list[Block] = []
        self._pending_media: list[Block] = []
        """Media that may not stand where it was produced; it is sent with the next user turn."""
        self.system: list[str] = []
        """The system texts before the first turn."""
        self.count = 0
        """The number of messages that were added."""

    def add_paired(self, messages: Sequence[Message]) -> bool:
        """Add further messages, unless calls and results in them must be paired first.

        Returns:
            Whether the messages were added. If not, the object is of no further use.
        """
        if not self._pairing.accept(messages) or self._pairing.open_calls:
            return False
        self.add(messages)
        return True

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages in which every call is followed by its result."""
        for message in messages:
            # Results first: a long conversation consists of them.
            if isinstance(message, ToolMessage):
                self.add_result(message)
            elif isinstance(message, AssistantMessage):
                self.add_response(message)
            elif isinstance(message, SystemMessage) and not self._turns:
                text = text_of(message.content)
                self.system += [text] if text.strip() else []
            else:
                # Few models accept a system message in the middle; all of them accept a user message.
                self.add_user(message.content)
        self.finish()
        self.count += len(messages)

    def turns(self, *, is_request: bool = True) -> list[Block]:
        """Return the turns, of which the first and last are the user's.

        Later requests share the blocks in them: copy a block to change it.
        """
        turns = [*self._turns]
        if turns:
            # Copied, because messages that are added later may be merged into it.
            turns[-1] = {**turns[-1], self._field: [*turns[-1][self._field]]}
        if is_request and (not turns or turns[-1]["role"] == self._model_role):
            turns.append({"role": "user", self._field: [self._text_block(CONTINUE)]})
        return turns

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
        media = self._pending_media
        self._pending_media = []
        self._add("user", media)

    def _add(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1][self._field] += blocks
        else:
            self._turns.append({"role": role, self._field: blocks})


T = TypeVar("T", bound=AlternatingTurns)


def convert_history(messages: Sequence[Message], key: Hashable, create: Callable[[], T]) -> T:
    """Convert a conversation; of an agent's, only the messages since its last request.

    Returns:
        The object that has built the turns.
    """
    if type(messages) is MessageWindow:
        # Removed until it is complete: an error leaves nothing half converted.
        known = cast("T | None", messages.forms.pop(key, None))
        turns = known if known is not None and known.count <= len(messages) else create()
        if turns.add_paired(messages.source[turns.count : len(messages)]):
            messages.forms[key] = turns
            return turns
    turns = create()
    turns.add(pair_calls_with_results(messages))
    return turns
