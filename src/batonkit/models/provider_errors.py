"""Errors of providers as ModelErrors, with advice on what to do about them."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from .. import errors

RejectionReason: TypeAlias = Literal[
    "authentication",
    "unknown_model",
    "unknown_url",
    "too_long",
    "filtered",
    "rate_limit",
    "quota",
    "overloaded",
    "timeout",
    "bad_request",
]
"""The reason why a provider rejected a request."""

_REASONS_BY_STATUS: Mapping[int, RejectionReason] = {
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "unknown_model",
    408: "timeout",
    409: "overloaded",
    413: "too_long",
    429: "rate_limit",
    499: "timeout",
    504: "timeout",
}

_REJECTIONS: Mapping[RejectionReason, tuple[type[errors.ModelError], str]] = {
    "authentication": (
        errors.AuthenticationError,
        "`{model}` rejected the API key: {detail}; check the key and its permissions",
    ),
    "unknown_model": (
        errors.ModelNotFoundError,
        "there is no model `{model}`: {detail}; check the name, and that this key may use the model",
    ),
    "unknown_url": (
        errors.ModelRequestError,
        "`{model}` was not found at this URL: {detail}; check base_url, which usually ends in /v1",
    ),
    "too_long": (
        errors.ContextTooLongError,
        "the request is too long for `{model}`: {detail}; shorten the history, for instance with an input_filter, "
        "or use a model with a larger context window",
    ),
    "filtered": (errors.ContentFilterError, "the content filter of `{model}` stopped this request: {detail}"),
    "rate_limit": (
        errors.RateLimitError,
        "`{model}` received too many requests: {detail}; wait, or raise ModelSettings(max_retries=…)",
    ),
    "quota": (
        errors.RateLimitError,
        "the quota for `{model}` is used up: {detail}; check the account's plan and balance, retrying will not help",
    ),
    "overloaded": (
        errors.OverloadedError,
        "`{model}` is unavailable: {detail}; retry later, raise ModelSettings(max_retries=…), or name a second model "
        "with FallbackModel",
    ),
    "timeout": (errors.ModelTimeoutError, "`{model}` timed out: {detail}"),
    "bad_request": (errors.ModelRequestError, "`{model}` rejected the request: {detail}"),
}
_RETRYABLE = ("rate_limit", "overloaded", "timeout")
_MAX_QUOTE = 500
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id")


class ProviderErrorDetails(Struct, frozen=True):
    """The details of an error that a provider sent."""

    text: str = ""
    kind: str = ""
    status: int | None = None
    fields: Mapping[str, Any] = {}


Classify: TypeAlias = Callable[[int, ProviderErrorDetails], RejectionReason]
"""Returns the reason for an HTTP status and the details of the error."""


def parse_error(body: Any) -> ProviderErrorDetails:
    """Read the details of a decoded error body, in any of the formats that servers use."""
    if isinstance(body, list) and body:
        return parse_error(cast("list[Any]", body)[0])
    if not isinstance(body, dict):
        return ProviderErrorDetails(str(cast(object, body))[:_MAX_QUOTE] if body else "")
    fields = cast("dict[str, Any]", body)
    inner = fields.get("error")
    if isinstance(inner, dict):
        return parse_error(inner)
    text = inner or fields.get("message") or fields.get("detail") or fields.get("msg") or ""
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    code = fields.get("code")
    kind = fields.get("type") or fields.get("status")
    status = int(code) if isinstance(code, int | str) and str(code).isdigit() else None
    return ProviderErrorDetails(text[:_MAX_QUOTE], f"{code or ''} {kind or ''}".strip(), status, fields)


def reason_for_status(status: int) -> RejectionReason:
    """Return the reason that an HTTP status of 400 or more implies by itself."""
    return _REASONS_BY_STATUS.get(status) or ("overloaded" if status >= 500 else "bad_request")


def error_from_details(
    model: str, status: int, details: ProviderErrorDetails, classify: Classify, *, wait: float | None = None
) -> errors.ModelError:
    """Build the error for a provider's details; the status is 200 within a response."""
    shown_status = "" if status == 200 else f" (status {status})"
    detail = f"{details.text or details.kind or 'no reason given'}{shown_status}"
    return rejected(model, classify(status, details), detail, retry_after=wait)


def error_from_response(
    model: str, status: int, headers: Mapping[str, str], body: bytes, classify: Classify
) -> errors.ModelError:
    """Build the error for a response with an HTTP status of 300 or more."""
    if status < 400:
        return redirected(model, status, headers)
    try:
        details = parse_error(msgspec.json.decode(body)) if body else ProviderErrorDetails()
    except msgspec.DecodeError:
        details = ProviderErrorDetails(body[:_MAX_QUOTE].decode(errors="replace").strip())
    error = error_from_details(model, status, details, classify, wait=retry_after(headers))
    advised = headers.get("x-should-retry")
    if advised in ("true", "false"):
        error.retryable = advised == "true"
    request_id = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)
    if request_id:
        error.add_note(f"The provider's request id is {request_id}.")
    return error


def rejected(
    model: str, reason: RejectionReason, detail: str, *, retry_after: float | None = None
) -> errors.ModelError:
    """Build the error for a rejected request; `detail` is the provider's explanation."""
    kind, template = _REJECTIONS[reason]
    retryable = reason in _RETRYABLE
    message = template.format(model=model, detail=detail)
    return kind(message, model=model, retryable=retryable, retry_after=retry_after if retryable else None)


def redirected(model: str, status: int, headers: Mapping[str, str]) -> errors.ModelConnectionError:
    """Build the error for a redirect, which is not followed.

    The request holds the conversation and often a key in a header or URL, which HTTP clients would send along.
    """
    why = "because the request holds the conversation and your credentials"
    what = f"`{model}` redirects to {_shown_address(headers)} (status {status}), and redirects are not followed, {why}"
    return errors.ModelConnectionError(f"{what}; if you trust that address, set base_url to it", model=model)


def _shown_address(headers: Mapping[str, str]) -> str:
    """Return the address of a redirect without the parts that may be secret."""
    try:
        target = urlsplit(headers.get("location", "")[:_MAX_QUOTE])
    except ValueError:
        return "an invalid address"
    return target._replace(netloc=target.netloc.rpartition("@")[2], query="", fragment="").geturl() or "no address"


def unreachable(model: str, because: object, *, url: str = "") -> errors.ModelConnectionError:
    """Build the error for a provider that cannot be reached."""
    at = f" at {url}" if url else ""
    advice = "check that it runs, base_url, the network and the proxy if there is one"
    return errors.ModelConnectionError(
        f"`{model}` cannot be reached{at}: {because}; {advice}", model=model, retryable=True
    )


def cut_short(model: str, *, has_begun: bool, because: object = "") -> errors.ModelConnectionError:
    """Build the error for a connection that was closed before the response was complete."""
    when = "in the middle of the response" if has_begun else "before the response"
    reason = f": {because}" if str(because) else ""
    return errors.ModelConnectionError(
        f"the connection to `{model}` was closed {when}{reason}", model=model, retryable=True
    )


def timed_out(model: str, seconds: float | None) -> errors.ModelTimeoutError:
    """Build the error for a provider that sent nothing for too long."""
    within = f" for {seconds:g} s" if seconds else ""
    advice = "raise the limit with ModelSettings(timeout=…)"
    return errors.ModelTimeoutError(f"`{model}` sent nothing{within}; {advice}", model=model, retryable=True)


def malformed(model: str, because: object, payload: bytes | None = None) -> errors.MalformedResponseError:
    """Build the error for an unreadable response; the payload may be private and is not quoted."""
    sent = "a response" if payload is None else f"{len(payload)} bytes"
    what = f"`{model}` sent {sent} in an unexpected format ({because})"
    return errors.MalformedResponseError(f"{what}; check base_url and the API it provides", model=model, retryable=True)


def empty(model: str, stop_reason: str) -> errors.ModelError:
    """Build the error for a response with neither text nor tool calls."""
    if stop_reason in ("content_filter", "refusal"):
        return filtered(model)
    what = f"`{model}` returned neither text nor tool calls"
    if stop_reason == "length":
        advice = "reasoning used up max_tokens; raise it with ModelSettings(max_tokens=…)"
        return errors.EmptyResponseError(f"{what}: {advice}", model=model)
    return errors.EmptyResponseError(what, model=model, retryable=True)


def filtered(model: str, because: str = "") -> errors.ContentFilterError:
    """Build the error for a response that the provider's content filter stopped."""
    why = f": {because}" if because else ""
    return errors.ContentFilterError(f"the content filter of `{model}` stopped the response{why}", model=model)


def unsupported(model: str, what: str, works: str) -> errors.ModelRequestError:
    """Build the error for content that the provider does not accept."""
    return errors.ModelRequestError(f"`{model}` does not accept {what}; {works}", model=model)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait according to the response headers, None if they do not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if seconds == seconds else None  # Not for "nan".
    # Imported here because it takes milliseconds to import, and few providers send a date.
    from email.utils import mktime_tz, parsedate_tz

    date = parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(0.0, mktime_tz(date) - time.time())
