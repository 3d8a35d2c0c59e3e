"""Conversation as dicts in the formats of OpenAI and Anthropic, with the encoders of their requests."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..messages import AssistantMessage, Message, SystemMessage, UserMessage, pair_calls_with_results


def to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Convert messages to the format of OpenAI's Chat Completions.

    Reasoning and the error flags of tool results are left out, and media in responses and tool results follows in a
    user message, because the format has no place for them.

    Args:
        messages: The messages.

    Returns:
        Dicts for `messages` of a request.

    Raises:
        ModelRequestError: The format has no place for a part, such as a file by URL.
    """
    from .openai.chat import ChatDialect

    # A message that has nothing but reasoning would be empty.
    shown = [replace(each, reasoning=()) if isinstance(each, AssistantMessage) else each for each in messages]
    return ChatDialect("", "to_openai()").encode_history(pair_calls_with_results(shown))


def to_responses(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Convert messages to items of OpenAI's Responses API.

    Reasoning of OpenAI's models is kept if it is encrypted; that of others and the error flags of tool results are left
    out. Media in responses follows in a user message.

    Args:
        messages: The messages.

    Returns:
        Dicts for `input` of a request.

    Raises:
        ModelRequestError: The format has no place for a part, such as audio.
    """
    from .openai.responses import ResponsesDialect

    return ResponsesDialect("", "to_responses()").encode_history(pair_calls_with_results(messages))


def to_anthropic(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Convert messages to turns of Anthropic's Messages API.

    Consecutive messages of one role become one turn, and the first turn is a user's. System messages become user
    messages, because the API takes the system prompt apart from the turns. Thinking of Claude is kept.

    Args:
        messages: The messages.

    Returns:
        Dicts for `messages` of a request.

    Raises:
        ModelRequestError: The format has no place for a part, such as audio without a transcript.
    """
    from .anthropic.anthropic_request import as_turns

    shown = [UserMessage(each.content) if isinstance(each, SystemMessage) else each for each in messages]
    turns = as_turns(shown, "to_anthropic()", is_request=False)[1]
    for turn in turns:
        for block in turn["content"]:
            if block["type"] == "tool_result":
                _shorten(block)
        _shorten(turn)
    return turns


def _shorten(turn: dict[str, Any]) -> None:
    """Replace content that is one text block with its text, as people write it."""
    blocks = turn.get("content", ())
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        turn["content"] = blocks[0]["text"]
