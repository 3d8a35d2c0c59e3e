"""Any agent, or any team, as a service of A2A: an ASGI app to run by itself or to mount in another.

The card of a service: what a team can do, how it is reached, and what callers must bring.
"""

import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from time import time
from typing import TYPE_CHECKING, Any

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import (
    AGENT_CARD_WELL_KNOWN_PATH,
    PROTOCOL_VERSION_0_3,
    PROTOCOL_VERSION_1_0,
    TransportProtocol,
)
from a2a.utils.errors import MethodNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from ...agents import BaseAgent
from ...errors import SetupError
from ...flow import Team
from ...runner import BackgroundRunner, Runner
from ...stores import Store
from ..http import Auth, AuthLike
from ..http.auth import to_auth_list
from .broadcast import TaskBroadcasts
from .handler import A2ARequestGuard, A2ARequestHandler
from .jsonrpc import JSONRPCBinding
from .legacy import LegacyRESTBinding, LegacyTranslator
from .push import PAUSES, PushConfigStore, PushNotifier, PushPolicy, allow_public_urls
from .rest import RESTBinding, refusal
from .tasks import TaskService

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

INPUT_MODES = (
    *("text/plain", "text/markdown", "text/csv", "text/html", "application/json", "application/pdf"),
    *("image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg"),
)
_SCHEMES = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
}
OUTPUT_MODES = ("text/plain", "application/json")


def card_of(team: Team, given: AgentCard | Mapping[str, Any] | None, auth: Sequence[Auth]) -> AgentCard:
    """The card of a team. A whole card is taken as it is given; a mapping has the fields that should be otherwise."""
    if isinstance(given, AgentCard):
        card = AgentCard()
        card.CopyFrom(given)
    else:
        card = _made(team)
        if given:
            _change(card, given)
    if auth and not card.security_schemes:
        for each in auth:
            card.security_schemes[each.name].CopyFrom(_scheme_of(each))
            card.security_requirements.append(SecurityRequirement(schemes={each.name: StringList()}))
    return card


def _scheme_of(auth: Auth) -> SecurityScheme:
    """A way of auth as cards have it: what OpenAPI says, with the type as the name of a field."""
    fields = dict(auth.openapi_scheme())
    kind = str(fields.pop("type", ""))
    if "in" in fields:
        fields["location"] = fields.pop("in")
    try:
        return ParseDict({_SCHEMES[kind]: fields}, SecurityScheme())
    except (KeyError, ParseError) as error:
        raise SetupError(f"`{auth.name}` describes itself as no scheme that agent cards know: {error}") from None


def _made(team: Team) -> AgentCard:
    root = team.members[team.root].agent
    return AgentCard(
        name=root.name,
        description=root.description or root.name,
        version=_version(),
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=INPUT_MODES,
        default_output_modes=OUTPUT_MODES,
        skills=[
            AgentSkill(
                id=name,
                name=name,
                description=seat.agent.description or name,
                tags=["agent" if name != root.name else "root"],
            )
            for name, seat in team.members.items()
        ],
    )


def _change(card: AgentCard, given: Mapping[str, Any]) -> None:
    try:
        wanted = ParseDict(dict(given), AgentCard())
    except ParseError as error:
        raise SetupError(f"serve_a2a(card=…) has what no agent card has: {error}") from None
    for field, _ in wanted.ListFields():
        card.ClearField(field.name)
    card.MergeFrom(wanted)


def reached_at(card: AgentCard, url: str, *, with_03: bool, grpc_url: str | None = None) -> AgentCard:
    """The card with the addresses where the service is reached, unless it names some itself."""
    reached = AgentCard()
    reached.CopyFrom(card)
    if not reached.supported_interfaces:
        base = url.rstrip("/")
        versions = [PROTOCOL_VERSION_1_0, *([PROTOCOL_VERSION_0_3] if with_03 else [])]
        for spoken in versions:
            for binding, address in ((TransportProtocol.JSONRPC, f"{base}/"), (TransportProtocol.HTTP_JSON, base)):
                reached.supported_interfaces.append(
                    AgentInterface(url=address, protocol_binding=binding.value, protocol_version=spoken)
                )
        if grpc_url:
            reached.supported_interfaces.append(
                AgentInterface(
                    url=grpc_url, protocol_binding=TransportProtocol.GRPC.value, protocol_version=PROTOCOL_VERSION_1_0
                )
            )
    return reached


def _version() -> str:
    try:
        return version("baton-adk")
    except PackageNotFoundError:
        return "0"


_logger = logging.getLogger("baton.a2a")
_LEASE = 5.0
_LARGEST_BODY = 16 * 1024 * 1024


class A2AApp:
    """The app that `serve_a2a` makes: it drives tasks apart from requests, and picks up those whose process died."""

    def __init__(
        self,
        hub: BackgroundRunner,
        *,
        url: str | None,
        card: AgentCard | Mapping[str, Any] | None,
        extended_card: AgentCard | None,
        auth: Sequence[Auth],
        compat_03: bool,
        sign_card: Callable[[AgentCard], AgentCard] | None,
        push_policy: PushPolicy,
        push_retry_delays: Sequence[float],
        max_body: int,
        allow_message_replies: bool,
        grpc_url: str | None,
    ) -> None:
        runner = self.runner = hub.runner
        self.card = card_of(runner.team, card, auth)
        """What the service says about itself; where it is reached is filled in for each request if no url was given."""
        self.auth = tuple(auth)
        if extended_card is not None:
            self.card.capabilities.extended_agent_card = True
        self._url = url
        self._compat_03 = compat_03
        self._sign = sign_card
        self._hub = hub
        self._push = PushNotifier(
            PushConfigStore(runner._require_store("serve_a2a")), policy=push_policy, pauses=push_retry_delays
        )
        self._tasks = TaskService(
            self._hub, TaskBroadcasts(self._hub, self._push.tell), may_be_messages=allow_message_replies
        )
        desk = self._desk = A2ARequestHandler(self._tasks, self.card, extended_card, self._push, needs_names=bool(auth))
        self.handler: RequestHandler = desk
        """What answers requests, for transports that have no door here."""
        entrance = self._entrance = A2ARequestGuard(self.card, auth, max_body)
        self._grpc_url = grpc_url
        self._made_at = formatdate(time(), usegmt=True)
        self._app = self._built(desk, entrance)

    def _built(self, desk: A2ARequestHandler, entrance: A2ARequestGuard) -> "Starlette":
        from starlette.applications import Starlette
        from starlette.routing import Route

        legacy = LegacyTranslator(desk, entrance) if self._compat_03 else None
        before: list[BaseRoute] = []
        if legacy is not None:
            # Some of those who speak 0.3 look for the card at the address that it names.
            before = [Route("/", self._card, methods=["GET"]), *LegacyRESTBinding(legacy, entrance).routes()]
        return Starlette(
            routes=[
                Route(AGENT_CARD_WELL_KNOWN_PATH, self._card, methods=["GET"]),
                Route("/", JSONRPCBinding(desk, entrance, legacy).answer, methods=["POST"]),
                *before,
                *RESTBinding(desk, entrance).routes(),
            ],
            exception_handlers={404: _nothing_there, 405: _nothing_there},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: "Starlette") -> AsyncGenerator[None]:
        self.start()
        try:
            yield
        finally:
            await self.close()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http":
            self.start()
        await self._app(scope, receive, send)

    def add_to_grpc(self, server: Any) -> None:
        """Have a `grpc.aio` server, before it starts, serve this as well: the same tasks, names and checks."""
        from .grpc import GRPCBinding

        GRPCBinding(self._desk, self._entrance).add_to(server)
        self.start()

    def start(self) -> None:
        """Begin to look after tasks whose process has died. The first request does it too; it is safe to call again."""
        self._hub.start_recovery()

    async def close(self) -> None:
        """Stop what is driven here: it can go on elsewhere, or when the service is there again."""
        await self._tasks.let_go()
        await self._push.close()
        await self.runner.close()

    def run(self, host: str = "127.0.0.1", port: int = 8000, *, allow_anonymous: bool = False) -> None:
        """Serve until interrupted. Beyond this machine only with `auth`, unless told that it is meant to be public."""
        check_host(host, self.auth, is_public=allow_anonymous)
        try:
            import uvicorn
        except ImportError:
            raise SetupError("A2AApp.run() needs uvicorn: pip install 'baton-adk[a2a]'") from None
        uvicorn.run(self, host=host, port=port, log_level="warning", timeout_graceful_shutdown=3)

    async def _card(self, request: "Request") -> "Response":
        from starlette.responses import JSONResponse, Response

        # Not `base_url`: where this is mounted, that is the address of the app around it.
        asked_at = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"
        card = reached_at(self.card, self._url or asked_at, with_03=self._compat_03, grpc_url=self._grpc_url)
        if self._sign is not None:
            card = self._sign(card)
        content = agent_card_to_dict(card) if self._compat_03 else MessageToDict(card)
        # Signatures of the same card may differ each time it is signed.
        unsigned = {key: value for key, value in content.items() if key != "signatures"}
        digest = hashlib.sha256(json.dumps(unsigned, sort_keys=True).encode()).hexdigest()
        headers = {
            "ETag": f'W/"{digest}"',
            "Last-Modified": self._made_at,
            "Cache-Control": "public, max-age=60",
        }
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if f'"{digest}"' in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return JSONResponse(content, headers=headers)


def a2a_app(
    target: BaseAgent[Any, Any] | Runner[Any, Any] | BackgroundRunner,
    *,
    url: str | None = None,
    card: AgentCard | Mapping[str, Any] | None = None,
    extended_card: AgentCard | None = None,
    auth: AuthLike | None = None,
    store: Store | str | PathLike[str] | None = None,
    compat_03: bool = False,
    sign_card: Callable[[AgentCard], AgentCard] | None = None,
    push_policy: PushPolicy = allow_public_urls,
    push_retry_delays: Sequence[float] = PAUSES,
    max_body: int = _LARGEST_BODY,
    allow_message_replies: bool = False,
    grpc_url: str | None = None,
) -> A2AApp:
    """An agent, a runner or a hub as a service of A2A: JSON-RPC, plain HTTP and the agent card, as one ASGI app.

    Tasks are runs: they are in the runner's store, or in `store`, and without one in memory. `url` is where callers
    reach the service, if that is not what requests say. `sign` signs the card. `auth` is enforced, and tasks belong to
    their callers. A webhook that fails is called again after each of `push_pauses`, if `push_policy` says that it may
    be called at all. With `messages`, agents may answer a stream with a message instead of a task, and it begins when
    the first of them has done something. `grpc_url` is what the card says of a gRPC server that `add_to` was given.
    """
    if isinstance(target, BaseAgent):
        hub = BackgroundRunner(Runner(target, store=store or "memory:", lease_seconds=_LEASE))
    elif store is not None:
        raise SetupError("serve_a2a(runner, store=…): a runner has its own store; give it there: Runner(…, store=…)")
    else:
        hub = target if isinstance(target, BackgroundRunner) else BackgroundRunner(target)
    return A2AApp(
        hub,
        url=url,
        card=card,
        extended_card=extended_card,
        auth=to_auth_list(auth),
        compat_03=compat_03,
        sign_card=sign_card,
        push_policy=push_policy,
        push_retry_delays=push_retry_delays,
        max_body=max_body,
        allow_message_replies=allow_message_replies,
        grpc_url=grpc_url,
    )


def check_host(host: str, auth: Sequence[Auth], *, is_public: bool) -> None:
    """Raise SetupError if a service that asks nobody for a name would be open to other machines."""
    from ..http.guard import is_local

    if not auth and not is_public and not is_local(host):
        raise SetupError(
            f"a service without auth would be open to everybody at {host}; give it auth=…, serve it at 127.0.0.1, "
            "or say that it is meant to be public"
        )


async def _nothing_there(request: "Request", error: Exception) -> "Response":
    status = getattr(error, "status_code", 404)
    return refusal(MethodNotFoundError(message=f"there is no {request.method} here"), status=status)
