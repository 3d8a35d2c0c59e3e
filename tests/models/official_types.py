"""Validation of dicts with the request types of the official SDKs."""

from functools import cache
from typing import Any, cast

from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from batonkit.models import to_anthropic, to_openai, to_responses


@cache
def _adapter(to_format: Any) -> TypeAdapter[Any]:
    types: dict[Any, Any] = {
        to_openai: list[ChatCompletionMessageParam],
        to_responses: list[ResponseInputItemParam],
        to_anthropic: list[MessageParam],
    }
    return TypeAdapter(types[to_format])


def validate(to_format: Any, dicts: list[dict[str, Any]]) -> None:
    """Validate dicts that a format function returned. Raises pydantic.ValidationError."""
    _read_all(_adapter(to_format).validate_python(dicts))


def _read_all(validated: Any) -> None:
    """Read the lazy iterators of pydantic: their elements are validated when they are read."""
    if isinstance(validated, dict):
        for value in cast("dict[str, Any]", validated).values():
            _read_all(value)
    elif not isinstance(validated, str | bytes) and hasattr(validated, "__iter__"):
        for value in validated:
            _read_all(value)
