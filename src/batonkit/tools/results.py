"""Conversion of return values and errors of tools to results that a model reads."""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from logging import getLogger
from typing import Any, Literal, TypeAlias, cast

import msgspec

from .._wording import error_text
from ..context.values import to_json_value
from ..errors import (
    NotEncodableError,
    RemoteError,
    RunError,
    SetupError,
    StoreError,
    ToolError,
    ToolFailedError,
    ToolResultError,
    ToolTimeoutError,
)
from ..messages import Audio, Content, Data, File, Image, Part, Text
from .base_tool import SupportsToolResult, ToolResult

_NONE_TEXT = "done"  # To a model an empty result looks like a failure.

_PARTS = (Text, Image, Audio, File, Data)
_NUMBERS = (int, float, bool)
_PLAIN = (dict, list, tuple)
_VALID_RESULTS = (
    "return text, a part (Text, Image, Audio, File, Data) or several, any JSON value, a dataclass, "
    "a msgspec struct, a pydantic model, a ToolResult or an agent"
)


def to_tool_result(value: Any, tool_name: str, *, is_final: bool = False) -> ToolResult:
    """Convert a tool's return value.

    Raises:
        ToolResultError: The value cannot be encoded.
    """
    if type(value) is str:
        return ToolResult(value, False, is_final)
    if value is None:
        return ToolResult(_NONE_TEXT, False, is_final)
    if type(value) in _NUMBERS:
        return ToolResult(msgspec.json.encode(value).decode(), False, is_final)
    if isinstance(value, ToolResult):
        return _mark_final(value) if is_final else value
    if type(value) not in _PLAIN and isinstance(value, SupportsToolResult) and not isinstance(value, type):
        result = value._as_tool_result()
        return _mark_final(result) if is_final else result
    return ToolResult(_to_content(value, tool_name), False, is_final)


def _mark_final(result: ToolResult) -> ToolResult:
    # The model corrects an error, and the target of a transfer answers: neither is the answer itself.
    if result.is_final or result.is_error or result.transfer_to is not None:
        return result
    return msgspec.structs.replace(result, is_final=True)


def _to_content(value: Any, tool_name: str) -> Content:
    if isinstance(value, str):
        return str(value.value) if isinstance(value, Enum) else str.__str__(value)
    if isinstance(value, _PARTS):
        return (_to_part(value, tool_name),)
    if isinstance(value, list | tuple):
        items = cast(list[Any] | tuple[Any, ...], value)
        # A list of strings only is data: as parts the boundaries between them would be lost.
        if any(isinstance(item, _PARTS) for item in items):
            return tuple(_to_part(item, tool_name) for item in items)
    return _to_json(value, tool_name)


def _to_part(item: Any, tool_name: str) -> Part:
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, Text | Image | Audio | File):
        return item
    value: Any = item.value if isinstance(item, Data) else item
    try:
        return Data(to_json_value("it", value))
    except NotEncodableError as error:
        raise _not_readable(value, tool_name, error) from error


def _to_json(value: Any, tool_name: str) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        kind = type(cast(object, value)).__name__
        raise ToolResultError(
            f"tool `{tool_name}` returned {kind}, which a model cannot read; "
            "return Image(data=…), Audio(data=…) or File(data=…), each with its media_type",
            tool=tool_name,
        )
    try:
        return msgspec.json.encode(value, enc_hook=_encode_model).decode()
    # pydantic's own errors are ValueErrors.
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        # Halves of surrogate pairs, such as in file names, can be replaced.
        with suppress(NotEncodableError):
            return msgspec.json.encode(to_json_value("it", value)).decode()
        raise _not_readable(value, tool_name, error) from error


def _encode_model(value: Any) -> msgspec.Raw:
    dump = getattr(value, "model_dump_json", None)
    if dump is None or isinstance(value, type):
        raise NotImplementedError(f"{type(cast(object, value)).__name__} is not JSON")
    return msgspec.Raw(dump().encode())


def _not_readable(value: object, tool_name: str, reason: Exception) -> ToolResultError:
    kind = type(value).__qualname__
    return ToolResultError(
        f"tool `{tool_name}` returned a {kind}, which a model cannot read ({reason}); {_VALID_RESULTS}", tool=tool_name
    )


_logger = getLogger("baton.tools")

ErrorPolicy: TypeAlias = Literal["return", "raise"] | Callable[[Exception], str]
"""Return the error to the model, end the run, or return the text that a function makes of the error."""

FATAL_ERRORS = (SetupError, RunError, StoreError, RemoteError, ToolFailedError, ToolResultError)
"""Errors that end the run whatever the policy, because a model cannot correct them."""


def check_error_policy(policy: Any, tool_name: str) -> ErrorPolicy:
    """Return the policy; raise SetupError if it is invalid."""
    if policy in ("return", "raise") or callable(policy):
        return cast(ErrorPolicy, policy)
    raise SetupError(f'tool `{tool_name}` has on_error={policy!r}; use "return", "raise" or a function (error) -> text')


def to_error_result(error: Exception, tool_name: str, *, policy: ErrorPolicy) -> ToolResult:
    """Convert an error to a result.

    Raises:
        ToolFailedError: The policy is to end the run.
    """
    # A ToolError is the tool's own message to the model, whatever the policy; a timeout's is not.
    if isinstance(error, ToolError) and not isinstance(error, ToolTimeoutError):
        return ToolResult(str(error), is_error=True)
    if policy == "raise":
        raise ToolFailedError(_describe(error, tool_name), tool=tool_name) from error
    _logger.warning("tool `%s` failed; the error is returned to the model", tool_name, exc_info=error)
    text = _describe(error, tool_name) if policy == "return" else policy(error)
    return ToolResult(text, is_error=True)


def _describe(error: Exception, tool_name: str) -> str:
    if isinstance(error, ToolTimeoutError):
        return error_text(error)
    return f"tool `{tool_name}` failed: {type(error).__name__}: {error_text(error)}".removesuffix(": ")
