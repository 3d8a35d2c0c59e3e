"""What went wrong at the provider, as the error that says what to do about it."""

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelTimeout,
    OverloadedError,
    RateLimitError,
    RequestError,
)

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


class Complaint(Struct, frozen=True):
    """What a provider says about an error; `text` is for people, `kind` is its code and type."""

    text: str = ""
    kind: str = ""
    status: int | None = None


def complaint_in(body: Any) -> Complaint:
    """The complaint in a decoded error, in any of the forms that servers use."""
    if isinstance(body, list) and body:
        return complaint_in(cast("list[Any]", body)[0])
    if not isinstance(body, dict):
        return Complaint(body[:_LONGEST_QUOTE] if isinstance(body, str) else "")
    said = cast("dict[str, Any]", body)
    inner = said.get("error")
    if isinstance(inner, dict):
        return complaint_in(inner)
    text = inner or said.get("message") or said.get("detail") or said.get("msg") or ""
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    code, kind = said.get("code"), said.get("type")
    status = int(code) if isinstance(code, int | str) and str(code).isdigit() else None
    return Complaint(text[:_LONGEST_QUOTE], f"{code or ''} {kind or ''}".strip(), status)


def refused(model: str, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error for an answer that has an HTTP status of 400 or more."""
    try:
        complaint = complaint_in(msgspec.json.decode(body)) if body else Complaint()
    except msgspec.DecodeError:
        complaint = Complaint(body[:_LONGEST_QUOTE].decode(errors="replace").strip())
    error = classified(model, status, complaint, retry_after(headers))
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
    return classified(model, status, complaint, None)


def classified(model: str, status: int, complaint: Complaint, rest: float | None) -> ModelError:
    """The error that this status and these words mean."""
    words = f"{complaint.kind} {complaint.text}"
    said = f"{complaint.text or complaint.kind or 'it gave no reason'} (status {status})"
    if status < 500 and _FILTERED.search(complaint.kind):
        return ContentFilterError(f"the filter of `{model}` stopped this request: {said}", model=model)
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(complaint.kind)):
        advice = "check the key, and what it may do"
        return AuthenticationError(f"`{model}` does not take this key: {said}; {advice}", model=model)
    if status == 402 or (status == 429 and _NO_CREDIT.search(complaint.kind)):
        advice = "look at the account's plan and balance; to wait does not help"
        return RateLimitError(f"the quota for `{model}` is used up: {said}; {advice}", model=model)
    if status == 429:
        what = f"`{model}` had too many requests: {said}; wait, or wrap the model in Retry"
        return RateLimitError(what, model=model, retryable=True, retry_after=rest)
    if status == 408:
        return ModelTimeout(f"`{model}` gave up waiting: {said}", model=model, retryable=True, retry_after=rest)
    if status == 409 or status >= 500:
        what = f"`{model}` cannot answer at present: {said}; ask again later, or wrap the model in Retry or Failover"
        return OverloadedError(what, model=model, retryable=True, retry_after=rest)
    if status in (400, 404) and _NO_MODEL.search(words):
        advice = "check the name, and that this key may use it"
        return ModelNotFoundError(f"there is no model for `{model}`: {said}; {advice}", model=model)
    if status in (400, 413, 422) and _TOO_LONG.search(words):
        advice = "shorten the history, for instance with an input_filter, or take a model that reads more"
        return ContextTooLongError(f"this is too long for `{model}`: {said}; {advice}", model=model)
    if status in (404, 405):
        what = f"`{model}` has nothing at this address: {said}; check base_url, which mostly ends in /v1"
        return RequestError(what, model=model)
    return RequestError(f"`{model}` does not take this request: {said}", model=model)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the provider asks for: in milliseconds, seconds, or until a date; None if it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wanted = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        # Neither "nan" nor a date in the past is a time to wait.
        return max(0.0, wanted) if wanted == wanted else None
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


def cut_short(model: str, *, has_begun: bool, because: object = "") -> ModelConnectionError:
    """The error for a connection that ended before the answer did."""
    when = "in the middle of its answer" if has_begun else "before it answered"
    reason = f": {because}" if str(because) else ""
    return ModelConnectionError(f"the connection to `{model}` was cut {when}{reason}", model=model, retryable=True)


def timed_out(model: str, seconds: float | None) -> ModelTimeout:
    """The error for a wait that was longer than allowed."""
    within = f" for {seconds:g} s" if seconds else ""
    advice = "allow more with ModelSettings(timeout=…)"
    return ModelTimeout(f"nothing came from `{model}`{within}; {advice}", model=model, retryable=True)


def malformed(model: str, payload: bytes, because: object) -> MalformedResponseError:
    """The error for something that cannot be read. It quotes nothing: that may be the conversation."""
    what = f"`{model}` sent {len(payload)} bytes that are not an answer of its format ({because})"
    return MalformedResponseError(f"{what}; check base_url and which API it speaks", model=model, retryable=True)


def empty(model: str, stop_reason: str) -> ModelError:
    """The error for an answer that says nothing."""
    if stop_reason == "length":
        advice = "its thinking used up max_tokens; allow more with ModelSettings(max_tokens=…)"
        return EmptyResponseError(f"`{model}` answered with neither text nor calls: {advice}", model=model)
    return EmptyResponseError(f"`{model}` answered with neither text nor calls", model=model, retryable=True)


def filtered(model: str) -> ContentFilterError:
    """The error for an answer that the provider's filter stopped, at its beginning or in the middle."""
    return ContentFilterError(f"the filter of `{model}` stopped its answer", model=model)
