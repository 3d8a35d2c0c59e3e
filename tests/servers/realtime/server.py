"""A local server of OpenAI's Realtime API."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, repeat
from typing import TypeAlias, cast

from aiohttp import web
from tests.servers.base import ReceivedRequest, RequestRejectedError
from tests.servers.openai.errors import need_key, refused, wrong
from tests.servers.realtime.connection import Fault, FaultPlan
from tests.servers.realtime.session import ClientViolation, Heard, ProviderOptions, ResponsePace, ServedSession
from tests.servers.server import JSON, LoopbackServer
from tests.waiting import PATIENCE

from batonkit.errors import ModelError, ModelNotFoundError
from batonkit.testing.scripted import ScriptedModel, ScriptStep

_PATH = "/v1/realtime"
_Steps: TypeAlias = Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]]


class OpenAIRealtimeServer(LoopbackServer):
    """A scripted provider behind `/v1/realtime`, over websockets.

    Steps are those of a ScriptedModel, one for each response; with a mapping, `by` returns the key for a session, by
    default the name of its model. `hears` are the transcripts of the user's audio, one for each commit; an exception
    is a failed transcription. Responses are spoken as tones of `ms_per_word`, as fast as possible, or `pace` times as
    fast as real time. Each of the `faults` happens once.
    """

    # Events that a client sent before it disconnected are still read, so that a test can count them.
    stops_with_its_client = False

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        by: Callable[[ServedSession], str] | None = None,
        hears: Iterable[Heard] = (),
        late_transcripts: bool = False,
        faults: Iterable[Fault] = (),
        models: Collection[str] | None = None,
        api_key: str = "test-key",
        cycle: bool = False,
        ms_per_word: int = 200,
        pace: float | None = None,
        delay: float = 0.0,
        record: bool = True,
    ) -> None:
        super().__init__()
        keys = tuple(cast("Mapping[str, object]", steps)) if isinstance(steps, Mapping) else ()
        self.script = ScriptedModel(cast("_Steps", steps), name=type(self).__name__, cycle=cycle, record=False)
        """The model that plays the steps."""
        self.models: Collection[str] | None = models if models is not None or by is not None else keys or None
        self.api_key = api_key
        self.sessions: list[ServedSession] = []
        """All sessions, in order of opening."""
        self.handshakes: list[ReceivedRequest] = []
        """All requests for a session, in order, including rejected ones."""
        self.complaints: list[ClientViolation] = []
        """The rejected commands of all sessions, in order."""
        self._plan = FaultPlan(faults)
        self._record = record
        self._refusals: deque[ModelError] = deque()
        self._opened = asyncio.Event()
        self._options = ProviderOptions(
            self.script,
            by or (_model_of if keys else _no_key),
            chain(hears, repeat("")),
            ResponsePace(ms_per_word, pace, delay),
            late_transcripts,
            self.complaints,
        )

    @property
    def base_url(self) -> str:
        """The address for clients: the origin and `/v1`."""
        return f"{self.origin}/v1"

    @property
    def remaining(self) -> int:
        """Number of steps that have not been played."""
        return self.script.remaining

    @property
    def faults_left(self) -> list[Fault]:
        """The faults that have not happened."""
        return self._plan.left

    def assert_done(self) -> None:
        """Raise AssertionError if steps were not played."""
        self.script.assert_done()

    def plan(self, *faults: Fault) -> None:
        """Add faults; events are counted from now on."""
        self._plan.add(*faults)

    def refuse(self, *errors: ModelError) -> None:
        """Reject the next handshakes, one for each error; an HttpFault with its own status."""
        self._refusals.extend(errors)

    async def session(self, index: int = 0, *, within: float = PATIENCE) -> ServedSession:
        """Wait for a session, counted from 0. Raises AssertionError on timeout."""
        try:
            async with asyncio.timeout(within):
                while len(self.sessions) <= index:
                    self._opened.clear()
                    await self._opened.wait()
        except TimeoutError:
            raise AssertionError(f"session {index} was not opened within {within:g} s") from None
        return self.sessions[index]

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Open a session, or reject the request."""
        received = ReceivedRequest(http.method, http.path, query=http.query, headers=http.headers, raw=b"")
        self.handshakes.append(received)
        try:
            model = self._check_handshake(received)
        except RequestRejectedError as rejection:
            received.rejection = rejection
            headers = {"content-type": JSON, **rejection.headers}
            return web.Response(status=rejection.status, body=rejection.body, headers=headers)
        served = ServedSession(received, model=model, options=self._options, plan=self._plan, record=self._record)
        self.sessions.append(served)
        self._opened.set()
        try:
            return await served.serve(http)
        finally:
            served.ended(by_server=self.is_closing)

    def _check_handshake(self, received: ReceivedRequest) -> str:
        """Return the requested model. Raises RequestRejectedError if the request is invalid."""
        need_key(received, self.api_key)
        if received.path != _PATH:
            raise wrong(f"Invalid URL ({received.method} {received.path})", status=404)
        if received.headers.get("upgrade", "").lower() != "websocket":
            raise wrong("This address is for websockets.", status=426)
        if "realtime=v1" in received.headers.get("openai-beta", ""):
            raise wrong("The Realtime Beta API is no longer supported.", code="beta_api_shape_disabled")
        if self._refusals:
            raise refused(self._refusals.popleft(), None)
        model = received.query.get("model", "")
        if not model:
            raise wrong("You must provide a model parameter.", param="model", code="missing_model")
        if self.models is not None and model not in self.models:
            raise refused(
                ModelNotFoundError(f"The model `{model}` does not exist or you do not have access to it."), None
            )
        return model


def _model_of(session: ServedSession) -> str:
    return session.model


def _no_key(session: ServedSession) -> str:
    return ""
