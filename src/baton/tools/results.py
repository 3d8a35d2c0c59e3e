"""What a function returned, as the model reads it.

What becomes of an error in a tool: something the model reads, or the end of the run.
"""

from collections.abc import Callable
from enum import Enum
from logging import getLogger
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..context.values import to_json_value
from ..errors import (
    NotEncodableError,
    RunError,
    SetupError,
    ToolError,
    ToolFailedError,
    ToolResultError,
    ToolTimeoutError,
)
from ..messages import Audio, Content, Data, File, Image, Part, Text
from .base import SupportsToolResult, ToolResult

NOTHING_RETURNED = "done"
"""What the model reads when a function returns None: an empty result looks to it like a failure."""

_PARTS = (Text, Image, Audio, File, Data)
_PLAIN = (dict, list, tuple, int, float, bool)
_WORKS = (
    "return text, a part (Text, Image, Audio, File, Data) or several, whatever JSON can hold, a dataclass, "
    "a msgspec struct, a pydantic model, a ToolResult or an agent"
)


def to_tool_result(value: Any, tool_name: str, *, is_final: bool = False) -> ToolResult:
    """What a tool's return value means. Raises ToolResultError if no model could read it."""
    if type(value) is str:
        return ToolResult(value, False, is_final)
    if value is None:
        return ToolResult(NOTHING_RETURNED, False, is_final)
    if isinstance(value, ToolResult):
        return _marked_final(value) if is_final else value
    if type(value) not in _PLAIN and isinstance(value, SupportsToolResult) and not isinstance(value, type):
        outcome = value._as_tool_result()
        return _marked_final(outcome) if is_final else outcome
    return ToolResult(_content_of(value, tool_name), False, is_final)


def _marked_final(outcome: ToolResult) -> ToolResult:
    # An error is for the model to mend, and who gets the floor will answer: neither can be the answer itself.
    if outcome.is_final or outcome.is_error or outcome.transfer_to is not None:
        return outcome
    return msgspec.structs.replace(outcome, is_final=True)


def _content_of(value: Any, tool_name: str) -> Content:
    if isinstance(value, str):
        return str(value.value) if isinstance(value, Enum) else str.__str__(value)
    if isinstance(value, _PARTS):
        return (_as_part(value, tool_name),)
    if isinstance(value, list | tuple):
        items = cast(list[Any] | tuple[Any, ...], value)
        # A list of nothing but strings is data: as parts it would lose where one ends and the next begins.
        if any(isinstance(item, _PARTS) for item in items):
            return tuple(_as_part(item, tool_name) for item in items)
    return _as_json(value, tool_name)


def _as_part(item: Any, tool_name: str) -> Part:
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, Text | Image | Audio | File):
        return item
    value: Any = item.value if isinstance(item, Data) else item
    try:
        return Data(to_json_value("it", value))
    except NotEncodableError as error:
        raise _unreadable(value, tool_name, error) from error


def _as_json(value: Any, tool_name: str) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        kind = type(cast(object, value)).__name__
        raise ToolResultError(
            f"tool `{tool_name}` returned {kind}, which no model can read as they are; "
            "return Image(data=…), Audio(data=…) or File(data=…), each with its media_type",
            tool=tool_name,
        )
    try:
        return msgspec.json.encode(value, enc_hook=_encode_model).decode()
    # pydantic's own errors are ValueErrors.
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise _unreadable(value, tool_name, error) from error


def _encode_model(value: Any) -> msgspec.Raw:
    dump = getattr(value, "model_dump_json", None)
    if dump is None or isinstance(value, type):
        raise NotImplementedError(f"{type(cast(object, value)).__name__} is not JSON")
    return msgspec.Raw(dump().encode())


def _unreadable(value: object, tool_name: str, reason: Exception) -> ToolResultError:
    kind = type(value).__qualname__
    return ToolResultError(
        f"tool `{tool_name}` returned a {kind}, which no model can read ({reason}); {_WORKS}", tool=tool_name
    )


logger = getLogger("baton.tools")

ErrorPolicy: TypeAlias = Literal["return", "raise"] | Callable[[Exception], str]
"""Tell the model what happened, end the run, or tell the model what a function of yours makes of the error."""

NOT_FOR_THE_MODEL = (SetupError, RunError, ToolFailedError, ToolResultError)
"""What no policy applies to: the model cannot mend it, so it always ends the run."""


def checked_policy(policy: Any, tool_name: str) -> ErrorPolicy:
    """The same policy, if it is one. Raises SetupError, so that a misspelt word is not found out by the first error."""
    if policy in ("return", "raise") or callable(policy):
        return cast(ErrorPolicy, policy)
    raise SetupError(f'tool `{tool_name}` has on_error={policy!r}; use "return", "raise" or a function (error) -> text')


def outcome_of_error(error: Exception, tool_name: str, *, policy: ErrorPolicy) -> ToolResult:
    """The error as the model will read it. Raises ToolFailedError if the policy is to end the run."""
    # A ToolError is a tool's own word to the model, whatever the policy; but nobody wrote a timeout's for this case.
    if isinstance(error, ToolError) and not isinstance(error, ToolTimeoutError):
        return ToolResult(str(error), is_error=True)
    if policy == "raise":
        raise ToolFailedError(_told(error, tool_name), tool=tool_name) from error
    logger.warning("tool `%s` failed; the model is told", tool_name, exc_info=error)
    text = _told(error, tool_name) if policy == "return" else policy(error)
    return ToolResult(text, is_error=True)


def _told(error: Exception, tool_name: str) -> str:
    if isinstance(error, ToolTimeoutError):
        return str(error)
    return f"tool `{tool_name}` failed: {type(error).__name__}: {error}".removesuffix(": ")
