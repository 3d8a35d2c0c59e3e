"""Mapping of errors of OpenAI and compatible servers."""

import re
from typing import Any

from ...errors import ModelError
from .. import provider_errors

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


def failed_inside(model: str, error: Any) -> ModelError:
    """Build the error for an error object within a response."""
    details = provider_errors.parse_error(error)
    status = details.status
    if status is None:
        words = f"{details.kind} {details.text}"
        status = 429 if _RATE_LIMITED.search(words) else 400 if "invalid" in details.kind else 500
    return provider_errors.error_from_details(model, status, details, classify)


def classify(status: int, details: provider_errors.ProviderErrorDetails) -> provider_errors.RejectionReason:
    """Return the reason for an error of OpenAI or a compatible server."""
    kind = details.kind
    words = f"{details.kind} {details.text}"
    if status < 500 and _FILTERED.search(kind):
        return "filtered"
    if status == 400 and _BAD_KEY.search(kind):
        return "authentication"
    if status == 429 and _NO_CREDIT.search(kind):
        return "quota"
    if status in (400, 404) and _UNKNOWN_MODEL.search(words):
        return "unknown_model"
    if status in (400, 422) and _TOO_LONG.search(words):
        return "too_long"
    if status in (404, 405):
        return "unknown_url"
    return "overloaded" if status >= 500 else provider_errors.reason_for_status(status)
