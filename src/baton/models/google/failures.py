"""What Google's errors mean."""

import re
from typing import Any, cast

from ...errors import ModelError
from ..failures import BY_STATUS, Objection, refused, retry_after

_TOO_LONG = re.compile(r"token count.{0,60}exceeds|exceeds the maximum number of tokens|context length", re.IGNORECASE)
_BAD_KEY = re.compile(r"API key (?:not valid|expired|not found)|API_KEY_INVALID", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def complaint(model: str, status: int, body: Any, headers: Any) -> ModelError:
    """The error for what Google sent instead of an answer, or in the middle of one."""
    told = _error_in(body)
    text = str(told.get("message") or told.get("status") or "it gave no reason")
    objection: Objection = BY_STATUS.get(status) or ("overloaded" if status >= 500 else "bad request")
    if status == 400:
        if _BAD_KEY.search(f"{text} {told.get('details', '')}"):
            objection = "key"
        elif _TOO_LONG.search(text):
            objection = "too long"
    rest = _delay_in(told)
    if rest is None and headers is not None:
        rest = retry_after(headers)
    return refused(model, objection, f"{text} (status {status})", retry_after=rest)


def _error_in(body: Any) -> dict[str, Any]:
    if isinstance(body, list) and body:
        return _error_in(cast("list[Any]", body)[0])
    if not isinstance(body, dict):
        return {"message": str(cast(object, body))[:500]} if body else {}
    told = cast("dict[str, Any]", body)
    inner = told.get("error")
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else told


def _delay_in(told: dict[str, Any]) -> float | None:
    """How long to wait, which Google says in the details of an error rather than in a header."""
    for detail in told.get("details") or ():
        if isinstance(detail, dict):
            found = _SECONDS.fullmatch(str(cast("dict[str, Any]", detail).get("retryDelay", "")))
            if found is not None:
                return float(found[1])
    return None
