"""The events of a run as server-sent events, for the HTTP API and for apps of your own."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ..._checks import check_arguments, check_positive
from ...errors import RunNotFoundError
from ...log import Delta, Event
from ...runs import BackgroundRunner
from ...stores import RunRecord, WaitingMessage
from ..http.auth import Principal
from ..http.sse import SSEResponse, encode_frame, iter_frames
from .endpoints import parse_int
from .run_schemas import encode_public_event

_MAX_DELTA_FRAMES = 256
_ANY = Principal(sees_all=True)


class EventStreams:
    """Event streams of the runs of one background runner.

    Use it in an app of your own that has its own authentication, for instance in FastAPI:

        streams = EventStreams(background)

        @app.get("/runs/{run_id}/events")
        async def events(run_id: str, request: Request) -> Response:
            return await streams.open(request, run_id)

    Args:
        background: The runner that drives the runs; it must have a store.
        heartbeat: Seconds of silence after which a stream sends a comment.
        show_errors: Show clients the message of the exception that failed a run.

    Raises:
        SetupError: The runner has no store, or an argument is invalid.
    """

    @check_arguments
    def __init__(self, background: BackgroundRunner, *, heartbeat: float = 15.0, show_errors: bool = False) -> None:
        check_positive("EventStreams(heartbeat=…)", heartbeat)
        self._background = background
        self._store = background.runner._require_store("EventStreams")
        self._heartbeat = heartbeat
        self._show_errors = show_errors
        self._delta_frames: dict[int, tuple[Delta, tuple[bytes]]] = {}
        """The frames of the newest deltas by identity, so that a delta is encoded once for all readers."""

    async def open(self, request: Request, run_id: str) -> Response:
        """Return a response that streams the events of a run until it stops.

        The stream starts after the event that the header `Last-Event-ID` or the parameter `after` names. The response
        is 204 if the run has stopped and has no later events, which tells an `EventSource` not to reconnect.

        Args:
            request: The incoming request.
            run_id: The run, as the store knows it. Check first that the client may read it.

        Raises:
            RunNotFoundError: There is no such run.
        """
        after = last_event_id(request)
        found = await self._store.record(run_id) or await self._store.waiting(run_id)
        if found is None:
            raise RunNotFoundError(run_id)
        return self.response(request, found, after, _ANY)

    def response(
        self, request: Request, found: RunRecord | WaitingMessage, after: int, principal: Principal
    ) -> Response:
        """Return the response for a run whose record is known.

        Args:
            request: The incoming request.
            found: The run, or the message that becomes one.
            after: The number of the last event that the client has.
            principal: The client, who sees public ids.
        """
        if isinstance(found, RunRecord) and found.status != "running" and found.seq - 1 <= after:
            # An EventSource reconnects whenever a stream ends, unless the response is 204.
            return Response(status_code=204)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        batches = self._background._subscribe_batches(found.run_id, after=after, silence=self._heartbeat)
        return SSEResponse(iter_frames(batches, partial(self._encode, principal)))

    def _encode(self, principal: Principal, item: tuple[int, Event | Delta]) -> tuple[bytes]:
        number, event = item
        if not isinstance(event, Delta):
            data = encode_public_event(event, principal, show_errors=self._show_errors)
            return (encode_frame(data, event=type(event).__name__, id=str(number)),)
        known = self._delta_frames.get(id(event))
        if known is not None:
            return known[1]
        # A delta is not in the log and cannot be requested again, so it has no id. It is the same for all readers.
        data = encode_public_event(event, principal, show_errors=self._show_errors)
        frames = (encode_frame(data, event=type(event).__name__),)
        if len(self._delta_frames) >= _MAX_DELTA_FRAMES:
            self._delta_frames.clear()
        self._delta_frames[id(event)] = (event, frames)
        return frames


def last_event_id(request: Request) -> int:
    """Return the number of the last event that a client has.

    It comes from the header `Last-Event-ID` or from the parameter `after`.

    Raises:
        ServingError: 422 if it is not a number.
    """
    header = request.headers.get("last-event-id")
    text = header or request.query_params.get("after", "0")
    return parse_int(text, "Last-Event-ID" if header else "after", minimum=0, maximum=10**15)
