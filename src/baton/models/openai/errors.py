"""Mapping of errors of OpenAI and compatible servers."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import ModelError
from ..provider_errors import ProviderErrorDetails, RejectionReason, parse_error, rejected, retry_after

_MAX_QUOTE = 500
_TOO_LONG = re.compile(
    r"context_length|context length|context window|maximum (?:context|input|prompt)|(?:prompt|input) is too long"
    r"|input length|too many (?:input )?tokens|string_above_max_length|exceed\w* .{0,40}(?:context|token limit)",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content_filter|content_policy|responsible_?ai|data_?inspection_?failed|sensitive", re.IGNORECASE
)
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|deployment_?not_?found|model.{0,200}(?:not found|not exist|does not exist|not supported)"
    r"|no such model|invalidendpointormodel|modelnotopen|unknown model",
    re.IGNORECASE | re.DOTALL,
)
_NO_CREDIT = re.compile(r"insufficient_(?:quota|balance)|billing|credit|arrearage|overdue", re.IGNORECASE)
_BAD_KEY = re.compile(r"invalid_api_key|invalidapikey|authentication", re.IGNORECASE)
_RATE_LIMITED = re.compile(r"rate_?limit|too many requests|throttl", re.IGNORECASE)


def turned_down(model: str, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """Build the error for a response with an HTTP status of 400 or more."""
    try:
        details = parse_error(msgspec.json.decode(body)) if body else ProviderErrorDetails()
    except msgspec.DecodeError:
        details = ProviderErrorDetails(body[:_MAX_QUOTE].decode(errors="replace").strip())
    error = _build_error(model, status, details, retry_after(headers))
    advised = headers.get("x-should-retry")
    if advised in ("true", "false"):
        error.retryable = advised == "true"
    request_id = headers.get("x-request-id") or headers.get("apim-request-id")
    if request_id:
        error.add_note(f"The provider's request id is {request_id}.")
    return error


def failed_inside(model: str, error: Any) -> ModelError:
    """Build the error for an error object within a response."""
    details = parse_error(error)
    status = details.status
    if status is None:
        words = f"{details.kind} {details.text}"
        status = 429 if _RATE_LIMITED.search(words) else 400 if "invalid" in details.kind else 500
    return _build_error(model, status, details, None)


def _build_error(model: str, status: int, details: ProviderErrorDetails, wait: float | None) -> ModelError:
    detail = f"{details.text or details.kind or 'no reason given'} (status {status})"
    return rejected(model, _reason(status, details), detail, retry_after=wait)


def _reason(status: int, details: ProviderErrorDetails) -> RejectionReason:
    kind, words = details.kind, f"{details.kind} {details.text}"
    if status < 500 and _FILTERED.search(kind):
        return "filtered"
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(kind)):
        return "authentication"
    if status == 402 or (status == 429 and _NO_CREDIT.search(kind)):
        return "quota"
    if status == 429:
        return "rate_limit"
    if status == 408:
        return "timeout"
    if status == 409 or status >= 500:
        return "overloaded"
    if status in (400, 404) and _UNKNOWN_MODEL.search(words):
        return "unknown_model"
    if status in (400, 413, 422) and _TOO_LONG.search(words):
        return "too_long"
    return "unknown_url" if status in (404, 405) else "bad_request"
