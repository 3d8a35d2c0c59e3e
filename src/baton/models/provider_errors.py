"""What goes wrong at a provider, as the error that says what to do about it."""

import email.utils
import time
from collections.abc import Mapping
from typing import Literal, TypeAlias, assert_never

from ..errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
)

Objection: TypeAlias = Literal[
    "key",
    "no model",
    "no address",
    "too long",
    "filtered",
    "too many",
    "no credit",
    "overloaded",
    "too slow",
    "bad request",
]
"""What a provider has against a request."""

BY_STATUS: Mapping[int, Objection] = {
    401: "key",
    402: "no credit",
    403: "key",
    404: "no model",
    408: "too slow",
    409: "overloaded",
    413: "too long",
    429: "too many",
    499: "too slow",
    504: "too slow",
}
"""What a status says by itself, where a provider's words do not say more."""


def refused(model: str, objection: Objection, said: str, *, retry_after: float | None = None) -> ModelError:
    """The error for a request that the provider did not answer; `said` is the reason in its own words."""
    match objection:
        case "key":
            what = f"`{model}` does not take this key: {said}; check the key, and what it may do"
            return AuthenticationError(what, model=model)
        case "no model":
            what = f"there is no model for `{model}`: {said}; check the name, and that this key may use it"
            return ModelNotFoundError(what, model=model)
        case "no address":
            what = f"`{model}` has nothing at this address: {said}; check base_url, which mostly ends in /v1"
            return ModelRequestError(what, model=model)
        case "too long":
            advice = "shorten the history, for instance with an input_filter, or take a model that reads more"
            return ContextTooLongError(f"this is too long for `{model}`: {said}; {advice}", model=model)
        case "filtered":
            return ContentFilterError(f"the filter of `{model}` stopped this request: {said}", model=model)
        case "too many":
            what = f"`{model}` had too many requests: {said}; wait, or wrap the model in Retry"
            return RateLimitError(what, model=model, retryable=True, retry_after=retry_after)
        case "no credit":
            advice = "look at the account's plan and balance; to wait does not help"
            return RateLimitError(f"the quota for `{model}` is used up: {said}; {advice}", model=model)
        case "overloaded":
            advice = "ask again later, or wrap the model in Retry or Failover"
            what = f"`{model}` cannot answer at present: {said}; {advice}"
            return OverloadedError(what, model=model, retryable=True, retry_after=retry_after)
        case "too slow":
            what = f"`{model}` gave up waiting: {said}"
            return ModelTimeoutError(what, model=model, retryable=True, retry_after=retry_after)
        case "bad request":
            return ModelRequestError(f"`{model}` does not take this request: {said}", model=model)
        case _:
            assert_never(objection)


def unreachable(model: str, because: object) -> ModelConnectionError:
    """The error for a provider that cannot be reached at all."""
    advice = "check the network and base_url"
    return ModelConnectionError(f"`{model}` cannot be reached: {because}; {advice}", model=model, retryable=True)


def cut_short(model: str, *, has_begun: bool, because: object = "") -> ModelConnectionError:
    """The error for a connection that ended before the answer did."""
    when = "in the middle of its answer" if has_begun else "before it answered"
    reason = f": {because}" if str(because) else ""
    return ModelConnectionError(f"the connection to `{model}` was cut {when}{reason}", model=model, retryable=True)


def timed_out(model: str, seconds: float | None) -> ModelTimeoutError:
    """The error for a wait that was longer than allowed."""
    within = f" for {seconds:g} s" if seconds else ""
    advice = "allow more with ModelSettings(timeout=…)"
    return ModelTimeoutError(f"nothing came from `{model}`{within}; {advice}", model=model, retryable=True)


def malformed(model: str, because: object, payload: bytes | None = None) -> MalformedResponseError:
    """The error for something that cannot be read. It quotes nothing: that may be the conversation."""
    sent = "something that is" if payload is None else f"{len(payload)} bytes that are"
    what = f"`{model}` sent {sent} not an answer of its format ({because})"
    return MalformedResponseError(f"{what}; check base_url and which API it speaks", model=model, retryable=True)


def empty(model: str, stop_reason: str) -> ModelError:
    """The error for an answer that says nothing."""
    if stop_reason in ("content_filter", "refusal"):
        return filtered(model)
    if stop_reason == "length":
        advice = "its thinking used up max_tokens; allow more with ModelSettings(max_tokens=…)"
        return EmptyResponseError(f"`{model}` answered with neither text nor calls: {advice}", model=model)
    return EmptyResponseError(f"`{model}` answered with neither text nor calls", model=model, retryable=True)


def filtered(model: str, because: str = "") -> ContentFilterError:
    """The error for an answer that the provider's filter stopped, at its beginning or in the middle."""
    why = f": {because}" if because else ""
    return ContentFilterError(f"the filter of `{model}` stopped its answer{why}", model=model)


def unfit(model: str, what: str, works: str) -> ModelRequestError:
    """The error for a part of the conversation that the provider has no form for."""
    return ModelRequestError(f"`{model}` cannot be given {what}; {works}", model=model)


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
