"""The page on troubleshooting has a section for every public error, and shows the messages as they are raised."""

import re
from collections.abc import Iterator

import pytest
from tests.architecture.public import public_objects
from tests.architecture.shape import REPOSITORY

from batonkit import errors
from batonkit.models import provider_errors

PAGE = (REPOSITORY / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(
    re.findall(r"^#{2,3} (\w+Error)\b.*?\n(.*?)(?=^#{1,3} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
)
MESSAGES: list[Exception] = [
    errors.InvalidIdError("run_id", "order 17", " ", "ASCII letters, digits and . _ ~ : @ % + = -"),
    errors.MissingExtraError("PostgresStore", "postgres", "psycopg"),
    errors.OutputError("Judge", "`int`", "it is not JSON"),
    errors.UnknownToolError("Desk", "send_mail", ["search"]),
    errors.ToolTimeoutError("search", 10),
    errors.ToolsUnavailableError("files.py", "it did not respond"),
    errors.LimitError("model_calls", 100, ["Desk", "Search"]),
    errors.UnknownPriceError(["Desk"]),
    errors.TurnLimitError("Desk", 20),
    errors.TransferError("Desk", "Kitchen", ["Bookings"]),
    errors.HandoffInputError("Desk", "Billing", "priority: Input should be a valid integer"),
    errors.LoopError("Left", "Right", 3, (), cycle=("Left", "Right", "Left")),
    errors.BranchTimeoutError("Research", "Law", 30),
    errors.GuardrailTrippedError("no_secrets", "Desk", stage="input", reason="it contains a password"),
    errors.GuardrailFailedError("no_secrets", "Desk", stage="input", reason="TimeoutError: no answer"),
    errors.RunNotFoundError("order-17", store="SQLiteStore('runs.db')"),
    errors.TeamChangedError("order-17", ["~ `Desk` was (Agent; tools search), is (Agent; tools search, pay)"]),
    errors.InterruptExpiredError("1/m1.0/ask1", 1794992400),
    errors.WorkerDiedError("order-17", 5),
    errors.ReplayMismatchError("1/m1.0", "ToolReturned", "InterruptRaised"),
    errors.RunConflictError("order-17", "`host-1` acquired its lease (fence 4; the writer has 3)"),
    errors.RunExistsError("order-17"),
    errors.ThreadBusyError("u42", "order-17", "running"),
    errors.ThreadExistsError("u42", "order-17"),
    errors.InboxFullError("u42", 100),
    errors.MessageGoneError("order-18"),
    errors.RemoteError("Hotels", "the task is failed: sold out"),
    errors.RemoteRejectedError("Hotels", "the task is rejected: I only book hotels"),
    errors.RemoteUnavailableError("Hotels", "the service is unavailable: Connection refused"),
    provider_errors.rejected("openai:gpt-5", "authentication", "Incorrect API key provided (status 401)"),
    provider_errors.rejected("openai:gpt-55", "unknown_model", "The model does not exist (status 404)"),
    provider_errors.rejected("openai:gpt-5", "unknown_url", "Not Found (status 404)"),
    provider_errors.rejected("openai:gpt-5", "too_long", "maximum context length is 400000 tokens (status 400)"),
    provider_errors.rejected("openai:gpt-5", "filtered", "flagged (status 400)"),
    provider_errors.rejected("openai:gpt-5", "rate_limit", "Rate limit reached (status 429)"),
    provider_errors.rejected("openai:gpt-5", "quota", "insufficient_quota (status 429)"),
    provider_errors.rejected("openai:gpt-5", "overloaded", "The server had an error (status 500)"),
    provider_errors.unreachable("ollama:llama3.2", "Connection refused", url="http://localhost:11434/v1"),
    provider_errors.cut_short("openai:gpt-5", has_begun=True),
    provider_errors.timed_out("openai:gpt-5", 600),
    provider_errors.malformed("openai:gpt-5", "JSON is malformed", bytes(214)),
    provider_errors.empty("openai:gpt-5", "length"),
]


def _public_errors() -> Iterator[str]:
    for name, value in public_objects():
        if isinstance(value, type) and issubclass(value, Exception):
            yield name.rpartition(".")[2]


def test_every_public_error_has_a_section() -> None:
    assert sorted(SECTIONS) == sorted(set(_public_errors()))


@pytest.mark.parametrize("error", MESSAGES, ids=lambda error: type(error).__name__)
def test_a_section_shows_the_message_of_its_error(error: Exception) -> None:
    assert str(error) in " ".join(SECTIONS[type(error).__name__].split())
