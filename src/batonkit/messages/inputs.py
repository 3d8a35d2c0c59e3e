"""The input of runs: text, messages, and dicts in the formats of OpenAI and Anthropic."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from .messages import MESSAGE_TYPES, Message, UserMessage

RunInput: TypeAlias = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]
"""Input of a run: text, a message, a dict in the format of OpenAI or Anthropic, or a list of messages and dicts."""


def to_messages(given: RunInput, *, what: str = "input") -> tuple[Message, ...]:
    """Convert the input of a run to messages.

    Dicts may be messages of OpenAI's Chat Completions or of Anthropic, items of OpenAI's Responses API, or messages of
    Baton as dicts. One dict may become several messages, and several items of one response become one message.

    Args:
        given: Text, a message, a dict, or a list of messages and dicts.
        what: The name of the input in error messages.

    Raises:
        SetupError: The input, or a part of it, is none of these; the message names the index and the key.
    """
    if isinstance(given, str):
        return (UserMessage(given),)
    if type(given) in MESSAGE_TYPES:
        return (cast("Message", given),)
    items: Any = (
        given if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray | memoryview) else None
    )
    if items is not None and MESSAGE_TYPES.issuperset(map(type, items)):
        return tuple(items)
    # Most programs pass text or messages, and need no decoder.
    from .input_items import decode_items

    return decode_items([given], what, is_single=True) if items is None else decode_items(items, what)
