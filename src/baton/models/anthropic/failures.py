"""What Anthropic's errors mean."""

import re
from typing import Any, cast

from ...errors import ModelError
from ..failures import BY_STATUS, Objection, refused

_TOO_LONG = re.compile(r"prompt is too long|exceed.{0,40}context|context (?:window|limit|length)", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance|usage limit|spend limit", re.IGNORECASE)
_FILTERED = re.compile(r"content filtering policy", re.IGNORECASE)

_BY_KIND: dict[str, Objection] = {
    "authentication_error": "key",
    "permission_error": "key",
    "billing_error": "no credit",
    "not_found_error": "no model",
    "request_too_large": "too long",
    "rate_limit_error": "too many",
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "too slow",
}


def complaint(model: str, status: int, body: Any, rest: float | None) -> ModelError:
    """The error for what Anthropic sent instead of an answer, or in the middle of one."""
    kind, text = _told(body)
    said = f"{text or kind or 'it gave no reason'}{f' (status {status})' if status != 200 else ''}"
    objection: Objection = _BY_KIND.get(kind) or BY_STATUS.get(status) or "bad request"
    if objection == "bad request":
        if _TOO_LONG.search(text):
            objection = "too long"
        elif _NO_CREDIT.search(text):
            objection = "no credit"
        elif _FILTERED.search(text):
            objection = "filtered"
        elif status >= 500:
            objection = "overloaded"
    return refused(model, objection, said, retry_after=rest)


def _told(body: Any) -> tuple[str, str]:
    """The kind of error and the words for people."""
    error = cast("dict[str, Any]", body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", str(cast(object, body))[:500] if body else ""
    told = cast("dict[str, Any]", error)
    return str(told.get("type") or ""), str(told.get("message") or "")
