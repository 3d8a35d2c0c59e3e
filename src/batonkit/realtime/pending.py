"""The responses of a realtime session: the one in progress, and the one to request next."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..errors import BatonError
from . import protocol
from .connection import ReconnectingConnection
from .voice_settings import RealtimeSettings, SessionConfig

_BUSY = "conversation_already_has_active_response"
_RETRY_DELAY = 0.2
_MAX_TRIES = 3


class ResponseScheduler:
    """Requests responses one at a time, and none while the user speaks (`can_respond`)."""

    def __init__(
        self, connection: ReconnectingConnection, settings: RealtimeSettings, can_respond: Callable[[], bool]
    ) -> None:
        self.active_response = ""
        """Id of the response in progress."""
        self.unprocessed: dict[str, None] = {}
        """Responses of the active agent whose end it has not processed, in order."""
        self._connection = connection
        self._settings = settings
        self._can_respond = can_respond
        self._is_requested = False
        self._is_queued = False
        self._expects_automatic = False
        """True if the provider is expected to respond to the user's speech without a request."""
        self._tries = 0
        self._count = 0
        self._configuring: deque[bool] = deque()
        """One entry per unconfirmed configuration: whether it changes the active agent."""
        self._retry: asyncio.Task[None] | None = None
        self.stale: set[str] = set()
        """Responses to be ignored, because they started under the previous agent's configuration."""
        self._cancelling = ""

    @property
    def is_pending(self) -> bool:
        """True if a response is queued, requested or expected, and has not started."""
        return self._is_queued or self._is_requested or self._expects_automatic

    async def request(self) -> None:
        """Request a response as soon as neither side speaks."""
        self._is_queued = True
        await self.request_if_idle()

    async def request_if_idle(self) -> None:
        """Request a response if one is queued and neither side speaks."""
        is_busy = self.active_response or self._is_requested or not self._can_respond()
        if self._is_queued and not is_busy and self._connection.is_connected:
            self._is_queued = False
            self._is_requested = True
            self._count += 1
            if not await self._connection.send(protocol.CreateResponse(f"ask_{self._count}")):
                self._is_queued = True
                self._is_requested = False

    async def cancel(self) -> None:
        """Cancel the response in progress, if any."""
        if self.active_response and self.active_response != self._cancelling:
            self._cancelling = self.active_response
            await self._connection.send(protocol.CancelResponse(self.active_response))

    async def configure(self, config: SessionConfig, *, changes_voice: bool, changes_agent: bool) -> None:
        """Send a new configuration to the model."""
        self._configuring.append(changes_agent)
        if not await self._connection.send(protocol.ConfigureSession(config, changes_voice=changes_voice)):
            self._configuring.clear()

    def on_configured(self) -> None:
        """Handle the confirmation of the oldest configuration."""
        if self._configuring:
            self._configuring.popleft()

    def on_user_turn(self) -> None:
        """Handle the end of the user's turn, to which the provider may respond by itself."""
        detection = self._settings.turn_detection
        self._expects_automatic = detection is not None and detection.create_response

    def on_item_resent(self) -> None:
        """Queue a response if the one requested or in progress was without the resent item."""
        self._is_queued = self._is_queued or self._is_requested or bool(self.active_response)

    async def on_started(self, signal: protocol.ResponseStarted) -> bool:
        """Handle the start of a response; return False if it is stale."""
        self.active_response = signal.response_id
        self._is_requested = False
        self._expects_automatic = False
        self._tries = 0
        if any(self._configuring):
            self.stale.add(signal.response_id)
            self._is_queued = True
            await self.cancel()
            return False
        self.unprocessed[signal.response_id] = None
        if not self._connection.has_unconfirmed_items:
            # It started when the provider had every item, so no other response is needed.
            self._is_queued = False
        return True

    def on_ended(self, signal: protocol.ResponseEnded) -> None:
        """Handle the end of a response."""
        self.stale.discard(signal.response_id)
        if signal.response_id == self.active_response:
            self.active_response = ""

    def discard_unprocessed(self) -> None:
        """Ignore unprocessed responses, because their agent is no longer active."""
        self.stale.update(self.unprocessed)
        self.unprocessed.clear()

    def on_disconnected(self) -> None:
        """Queue a response again if one was in progress, requested or expected."""
        self._is_queued = self.is_pending or bool(self.active_response)
        self.active_response = ""
        self._is_requested = False
        self._expects_automatic = False
        self._configuring.clear()
        self.stale.clear()

    def handle_error(self, error: protocol.ProviderErrorReceived) -> bool:
        """Retry a refused request for a response; return False for any other error."""
        self._expects_automatic = False
        is_ours = error.command_id == f"ask_{self._count}"
        if error.code != _BUSY and not is_ours:
            return False
        self._is_requested = False
        if error.code != _BUSY:
            self._tries += 1
            if self._tries >= _MAX_TRIES:
                self._tries = 0
                return False
        # The provider may have started one by itself whose signal is still on its way; its end triggers a request too.
        self._is_queued = True
        self._retry = asyncio.create_task(self._request_later(), name="baton response retry")
        return True

    async def _request_later(self) -> None:
        await asyncio.sleep(_RETRY_DELAY)
        # Errors of the connection reach the active agent through its reader.
        with suppress(BatonError):
            await self.request_if_idle()
