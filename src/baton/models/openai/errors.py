"""What the errors of OpenAI, and of servers like it, mean."""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...errors import ModelError
from ..provider_errors import Objection, refused, retry_after

_LONGEST_QUOTE = 500
_TOO_LONG = re.compile(
    r"context_length|context length|context window|maximum (?:context|input|prompt)|(?:prompt|input) is too long"
    r"|input length|too many (?:input )?tokens|string_above_max_length|exceed\w* .{0,40}(?:context|token limit)",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content_filter|content_policy|responsible_?ai|data_?inspection_?failed|sensitive", re.IGNORECASE
)
_NO_MODEL = re.compile(
    r"model_not_found|deployment_?not_?found|model.{0,200}(?:not found|not exist|does not exist|not supported)"
    r"|no such model|invalidendpointormodel|modelnotopen|unknown model",
    re.IGNORECASE | re.DOTALL,
)
_NO_CREDIT = re.compile(r"insufficient_(?:quota|balance)|billing|credit|arrearage|overdue", re.IGNORECASE)
_BAD_KEY = re.compile(r"invalid_api_key|invalidapikey|authentication", re.IGNORECASE)
_LIMITED = re.compile(r"rate_?limit|too many requests|throttl", re.IGNORECASE)


class ProviderErrorDetails(Struct, frozen=True):
    """What a provider says about an error; `text` is for people, `kind` is its code and type."""

    text: str = ""
    kind: str = ""
    status: int | None = None


def complaint_in(body: Any) -> ProviderErrorDetails:
    """The complaint in a decoded error, in any of the forms that servers use."""
    if isinstance(body, list) and body:
        return complaint_in(cast("list[Any]", body)[0])
    if not isinstance(body, dict):
        return ProviderErrorDetails(body[:_LONGEST_QUOTE] if isinstance(body, str) else "")
    said = cast("dict[str, Any]", body)
    inner = said.get("error")
    if isinstance(inner, dict):
        return complaint_in(inner)
    text = inner or said.get("message") or said.get("detail") or said.get("msg") or ""
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    code, kind = said.get("code"), said.get("type")
    status = int(code) if isinstance(code, int | str) and str(code).isdigit() else None
    return ProviderErrorDetails(text[:_LONGEST_QUOTE], f"{code or ''} {kind or ''}".strip(), status)


def turned_down(model: str, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error for an answer that has an HTTP status of 400 or more."""
    try:
        complaint = complaint_in(msgspec.json.decode(body)) if body else ProviderErrorDetails()
    except msgspec.DecodeError:
        complaint = ProviderErrorDetails(body[:_LONGEST_QUOTE].decode(errors="replace").strip())
    error = _told(model, status, complaint, retry_after(headers))
    advised = headers.get("x-should-retry")
    if advised in ("true", "false"):
        error.retryable = advised == "true"
    request_id = headers.get("x-request-id") or headers.get("apim-request-id")
    if request_id:
        error.add_note(f"The provider calls this request {request_id}.")
    return error


def failed_inside(model: str, error: Any) -> ModelError:
    """The error for a complaint that came as a part of an answer that had begun well."""
    complaint = complaint_in(error)
    status = complaint.status
    if status is None:
        words = f"{complaint.kind} {complaint.text}"
        status = 429 if _LIMITED.search(words) else 400 if "invalid" in complaint.kind else 500
    return _told(model, status, complaint, None)


def _told(model: str, status: int, complaint: ProviderErrorDetails, rest: float | None) -> ModelError:
    said = f"{complaint.text or complaint.kind or 'it gave no reason'} (status {status})"
    return refused(model, _objection(status, complaint), said, retry_after=rest)


def _objection(status: int, complaint: ProviderErrorDetails) -> Objection:
    """What this status and these words mean."""
    kind, words = complaint.kind, f"{complaint.kind} {complaint.text}"
    if status < 500 and _FILTERED.search(kind):
        return "filtered"
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(kind)):
        return "key"
    if status == 402 or (status == 429 and _NO_CREDIT.search(kind)):
        return "no credit"
    if status == 429:
        return "too many"
    if status == 408:
        return "too slow"
    if status == 409 or status >= 500:
        return "overloaded"
    if status in (400, 404) and _NO_MODEL.search(words):
        return "no model"
    if status in (400, 413, 422) and _TOO_LONG.search(words):
        return "too long"
    return "no address" if status in (404, 405) else "bad request"
