"""Values, calls and usage in the few words a line in a terminal has room for."""

import re
from typing import Any, cast

import msgspec

from ..messages import Usage

_LONGEST = 160
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with control characters made visible, so that a model cannot move the cursor or recolour the screen."""
    return _CONTROL.sub(_visible, text)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The text on one line, cut off where it gets too long."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def shown_value(value: Any) -> str:
    """Text as it is, anything else as JSON, and what is not JSON as Python shows it."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, NotImplementedError, msgspec.MsgspecError):
        return repr(value)


def shown_call(name: str, arguments: Any) -> str:
    """A call as code would write it: `get_weather(city="Rome")`. Arguments may be JSON text or what it says."""
    given: Any = arguments
    if isinstance(arguments, str):
        try:
            given = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return shortened(f"{name}({arguments})")
    if not isinstance(given, dict):
        return shortened(f"{name}({shown_value(given)})")
    named = cast(dict[str, Any], given)
    return shortened(f"{name}({', '.join(f'{key}={_quoted(value)}' for key, value in named.items())})")


def shown_usage(usage: Usage, seconds: float | None = None) -> str:
    """What was consumed: `3 model calls · 412 tokens in, 57 out · 1.2 s`."""
    calls = usage.model_calls
    pieces = [f"{calls} model call{'' if calls == 1 else 's'}"]
    if usage.total_tokens:
        pieces.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    elif calls:
        pieces.append("tokens not reported")
    if usage.cost:
        pieces.append(f"cost {usage.cost:.4g}")
    if seconds is not None:
        pieces.append(f"{seconds:.1f} s")
    return " · ".join(pieces)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 0x0D:
        return ""
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def _quoted(value: Any) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, str) else shown_value(value)
