"""Mapping of provider failures to Baton's errors."""

import time
from email.utils import formatdate

import pytest

from batonkit.errors import ContentFilterError, EmptyResponseError, ModelError
from batonkit.models.provider_errors import RejectionReason, empty, rejected, retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": formatdate(0)}, 0.0),
        ({}, None),
    ],
)
def test_retry_after_is_parsed(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    wanted = retry_after({"retry-after": formatdate(time.time() + 3600)})
    assert wanted is not None
    assert 3000 < wanted <= 3600


@pytest.mark.parametrize(
    ("reason", "retryable", "advice"),
    [
        ("authentication", False, "check the key"),
        ("unknown_model", False, "check the name"),
        ("unknown_url", False, "check base_url"),
        ("too_long", False, "shorten the history"),
        ("filtered", False, "stopped this request"),
        ("rate_limit", True, "raise ModelSettings(max_retries=…)"),
        ("quota", False, "retrying will not help"),
        ("overloaded", True, "a second model with FallbackModel"),
        ("timeout", True, "timed out"),
        ("bad_request", False, "rejected the request"),
    ],
)
def test_each_rejection_has_advice(reason: RejectionReason, retryable: bool, advice: str) -> None:
    error = rejected("some:model", reason, "it says no", retry_after=2.0)
    assert isinstance(error, ModelError)
    assert (error.retryable, error.model) == (retryable, "some:model")
    assert "it says no" in str(error)
    assert advice in str(error)
    assert error.retry_after == (2.0 if retryable else None)


@pytest.mark.parametrize(
    ("reason", "kind", "retryable"),
    [
        ("stop", EmptyResponseError, True),
        ("length", EmptyResponseError, False),
        ("content_filter", ContentFilterError, False),
        ("refusal", ContentFilterError, False),
    ],
)
def test_empty_responses_map_to_errors(reason: str, kind: type[ModelError], retryable: bool) -> None:
    error = empty("some:model", reason)
    assert (type(error), error.retryable) == (kind, retryable)
