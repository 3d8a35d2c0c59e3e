"""What it means that OpenAI will not open a websocket, or closes it."""

from typing import TYPE_CHECKING

from ...errors import ModelConnectionError, ModelError
from ...models.failures import cut_short, malformed, timed_out, unreachable
from ...models.openai.failures import failed_inside, turned_down
from ..signals import ProviderErrorReceived

if TYPE_CHECKING:
    from websockets.exceptions import ConnectionClosed

MALFORMED = "malformed_event"
"""The code of a Trouble that is about what OpenAI itself has sent."""
_IN_GOOD_ORDER = 1000
_REFUSED = (3000, 4000)
"""Codes that mean that the session is refused; the reason is a type and a code of OpenAI's errors."""


def closed(model: str, error: "ConnectionClosed") -> ModelError | None:
    """The error for a websocket that the other side has closed; None if it did so in good order."""
    close = error.rcvd
    if close is None:
        return cut_short(model, has_begun=True, because="there was no close frame")
    if close.code == _IN_GOOD_ORDER:
        return None
    if close.code in _REFUSED and "." in close.reason:
        kind, _, code = close.reason.partition(".")
        return failed_inside(model, {"type": kind, "code": code, "message": close.reason})
    return cut_short(model, has_begun=True, because=f"it was closed with {close.code} {close.reason}".rstrip())


def complaint(model: str, trouble: ProviderErrorReceived) -> ModelError:
    """The error for a complaint before the conversation was open: then it cannot be opened at all."""
    if trouble.code == MALFORMED:
        return malformed(model, trouble.message)
    kind = "server_error" if "server" in trouble.code else "invalid_request_error"
    return failed_inside(model, {"type": kind, "code": trouble.code, "message": trouble.message})


def not_opened(model: str, error: Exception, seconds: float) -> ModelError:
    """The error for a handshake that failed."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus

    if isinstance(error, InvalidStatus):
        response = error.response
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        return turned_down(model, response.status_code, headers, bytes(response.body or b""))
    if isinstance(error, TimeoutError):
        return timed_out(model, seconds)
    if isinstance(error, InvalidHandshake):
        what = f"`{model}` does not speak websockets at this address: {error}; check base_url"
        return ModelConnectionError(what, model=model)
    return unreachable(model, error)
