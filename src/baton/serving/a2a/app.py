"""The `a2a_app` factory, the app that it returns, and the agent card."""

import hashlib
import json
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

from ...errors import SetupError
from ...flow import Team
from ...runner import BackgroundRunner
from ...stores import Store
from ..http import Auth, AuthLike
from ..http.app import AppTarget, ContextFactory, cors_middleware, to_background_runner
from ..http.guard import RequestGuard
from ..server import serve
from .broadcast import TaskBroadcasts
from .handler import A2ARequestGuard, A2ARequestHandler
from .jsonrpc import JSONRPCBinding
from .legacy import LegacyRESTBinding, LegacyTranslator
from .projection import TaskReader
from .push import RETRY_DELAYS, PushConfigStore, PushNotifier, PushPolicy, allow_public_urls
from .rest import RESTBinding, to_error_response
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


def make_card(team: Team, given: AgentCard | Mapping[str, Any] | None, auth: Sequence[Auth]) -> AgentCard:
    """Return the agent card of a team.

    Args:
        team: The team.
        given: A complete card, or fields that replace those of the generated card.
        auth: The schemes to declare, unless the card declares some.

    Raises:
        SetupError: `given` has an unknown field, or a scheme cannot be declared in a card.
    """
    if isinstance(given, AgentCard):
        card = AgentCard()
        card.CopyFrom(given)
    else:
        card = _generate_card(team)
        if given:
            _update_card(card, given)
    if auth and not card.security_schemes:
        for scheme in auth:
            card.security_schemes[scheme.name].CopyFrom(_to_card_scheme(scheme))
            card.security_requirements.append(SecurityRequirement(schemes={scheme.name: StringList()}))
    return card


def _to_card_scheme(auth: Auth) -> SecurityScheme:
    # A card has the fields of OpenAPI, in a field named after the type.
    fields = dict(auth.openapi_scheme())
    kind = str(fields.pop("type", ""))
    if "in" in fields:
        fields["location"] = fields.pop("in")
    try:
        return ParseDict({_SCHEMES[kind]: fields}, SecurityScheme())
    except (KeyError, ParseError) as error:
        raise SetupError(f"the auth scheme `{auth.name}` cannot be declared in an agent card: {error}") from None


def _generate_card(team: Team) -> AgentCard:
    root = team.members[team.root].agent
    return AgentCard(
        name=root.name,
        description=root.description or root.name,
        version=_package_version(),
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


def _update_card(card: AgentCard, given: Mapping[str, Any]) -> None:
    try:
        update = ParseDict(dict(given), AgentCard())
    except ParseError as error:
        raise SetupError(f"a2a_app(card=…) is not an agent card: {error}") from None
    for field, _ in update.ListFields():
        card.ClearField(field.name)
    card.MergeFrom(update)


def with_interfaces(card: AgentCard, url: str, *, compat_03: bool, grpc_url: str | None = None) -> AgentCard:
    """Return a copy of a card with the service's interfaces, unless it lists some.

    Args:
        card: The card.
        url: The base URL of the service.
        compat_03: Whether to list interfaces of protocol version 0.3 too.
        grpc_url: The address of the gRPC interface.
    """
    copy = AgentCard()
    copy.CopyFrom(card)
    if not copy.supported_interfaces:
        base = url.rstrip("/")
        versions = [PROTOCOL_VERSION_1_0, *([PROTOCOL_VERSION_0_3] if compat_03 else [])]
        for version in versions:
            for binding, address in ((TransportProtocol.JSONRPC, f"{base}/"), (TransportProtocol.HTTP_JSON, base)):
                copy.supported_interfaces.append(
                    AgentInterface(url=address, protocol_binding=binding.value, protocol_version=version)
                )
        if grpc_url:
            copy.supported_interfaces.append(
                AgentInterface(
                    url=grpc_url, protocol_binding=TransportProtocol.GRPC.value, protocol_version=PROTOCOL_VERSION_1_0
                )
            )
    return copy


def _package_version() -> str:
    try:
        return version("baton-adk")
    except PackageNotFoundError:
        return "0"


_LEASE_SECONDS = 5.0


class A2AApp:
    """The ASGI app that `a2a_app` returns.

    It drives tasks in the background and takes over abandoned ones.

    Attributes:
        runner: The runner of the tasks.
        card: The agent card; without a `url`, its interfaces are filled in for each request.
        handler: The SDK request handler, for other transports.
    """

    def __init__(
        self,
        background: BackgroundRunner,
        guard: RequestGuard,
        *,
        cors_origins: Sequence[str],
        show_errors: bool,
        context_factory: ContextFactory | None,
        url: str | None,
        card: AgentCard | Mapping[str, Any] | None,
        extended_card: AgentCard | None,
        compat_03: bool,
        sign_card: Callable[[AgentCard], AgentCard] | None,
        push_policy: PushPolicy,
        push_retry_delays: Sequence[float],
        allow_message_replies: bool,
        grpc_url: str | None,
    ) -> None:
        runner = self.runner = background.runner
        self.card = make_card(runner.team, card, guard.auth)
        if extended_card is not None:
            self.card.capabilities.extended_agent_card = True
        self._url = url
        self._grpc_url = grpc_url
        self._compat_03 = compat_03
        self._sign_card = sign_card
        self._background = background
        self._context_factory = context_factory
        self._is_authenticated = bool(guard.auth)
        reader = TaskReader(runner._require_store("a2a_app"), show_errors=show_errors)
        self._push = PushNotifier(PushConfigStore(reader.store), reader, policy=push_policy, delays=push_retry_delays)
        self._tasks = TaskService(
            background,
            TaskBroadcasts(background, self._push.notify),
            reader,
            context_factory=context_factory,
            allow_message_replies=allow_message_replies,
        )
        self._handler = A2ARequestHandler(
            self._tasks, self.card, extended_card, self._push, requires_auth=self._is_authenticated
        )
        self.handler: RequestHandler = self._handler
        self._guard = A2ARequestGuard(self.card, guard)
        self._modified_at = formatdate(time(), usegmt=True)
        self._app = self._make_app(cors_origins)

    def _make_app(self, cors_origins: Sequence[str]) -> "Starlette":
        from starlette.applications import Starlette
        from starlette.routing import Route

        # Not the SDK's route factories: they build the call context synchronously, so they cannot await an auth scheme,
        # and their dispatchers send exception texts to clients.
        legacy = LegacyTranslator(self._handler, self._guard) if self._compat_03 else None
        legacy_routes: list[BaseRoute] = []
        if legacy is not None:
            # Some clients of 0.3 look for the card at the URL that it names.
            legacy_routes = [
                Route("/", self._get_card, methods=["GET"]),
                *LegacyRESTBinding(legacy, self._guard).routes(),
            ]
        return Starlette(
            routes=[
                Route(AGENT_CARD_WELL_KNOWN_PATH, self._get_card, methods=["GET"]),
                Route("/", JSONRPCBinding(self._handler, self._guard, legacy).handle, methods=["POST"]),
                *legacy_routes,
                *RESTBinding(self._handler, self._guard).routes(),
            ],
            middleware=cors_middleware(cors_origins),
            exception_handlers={404: _unknown_path, 405: _unknown_path},
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
        """Add the service to a `grpc.aio` server, with the same tasks, authentication and checks.

        Args:
            server: The server, before it is started.
        """
        from .grpc import GRPCBinding

        GRPCBinding(self._handler, self._guard).add_to(server)
        self.start()

    def start(self) -> None:
        """Start to take over abandoned tasks, as the first request does. Safe to call again."""
        self._background.start_recovery(self._context_factory)

    async def close(self) -> None:
        """Release the tasks that are driven here to other processes, and close the runner."""
        await self._tasks.close()
        await self._push.close()
        await self.runner.close()

    def run(self, host: str = "127.0.0.1", port: int = 8000, *, allow_anonymous: bool = False) -> None:
        """Serve the app until the process is stopped.

        Args:
            host: The address to listen on.
            port: The port to listen on.
            allow_anonymous: Accept a `host` that other machines can reach although the app has no `auth`.

        Raises:
            SetupError: Other machines can reach `host`, and the app neither has `auth` nor allows anonymous access.
        """
        serve(
            self,
            host=host,
            port=port,
            allow_anonymous=allow_anonymous or self._is_authenticated,
            timeout_graceful_shutdown=3,
        )

    async def _get_card(self, request: "Request") -> "Response":
        from starlette.responses import JSONResponse, Response

        # Not `base_url`: for a mounted app, that is the URL of the outer app.
        request_url = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"
        card = with_interfaces(self.card, self._url or request_url, compat_03=self._compat_03, grpc_url=self._grpc_url)
        if self._sign_card is not None:
            card = self._sign_card(card)
        content = agent_card_to_dict(card) if self._compat_03 else MessageToDict(card)
        # Signatures of the same card may differ each time.
        unsigned = {key: value for key, value in content.items() if key != "signatures"}
        digest = hashlib.sha256(json.dumps(unsigned, sort_keys=True).encode()).hexdigest()
        headers = {
            "ETag": f'W/"{digest}"',
            "Last-Modified": self._modified_at,
            "Cache-Control": "public, max-age=60",
        }
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if f'"{digest}"' in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return JSONResponse(content, headers=headers)


def a2a_app(
    target: AppTarget,
    /,
    *,
    auth: AuthLike | None = None,
    allow_anonymous: bool = False,
    cors_origins: Sequence[str] = (),
    max_body: int = 16 << 20,
    show_errors: bool = False,
    context_factory: ContextFactory | None = None,
    store: Store | str | PathLike[str] | None = None,
    url: str | None = None,
    card: AgentCard | Mapping[str, Any] | None = None,
    extended_card: AgentCard | None = None,
    sign_card: Callable[[AgentCard], AgentCard] | None = None,
    push_policy: PushPolicy = allow_public_urls,
    push_retry_delays: Sequence[float] = RETRY_DELAYS,
    compat_03: bool = False,
    grpc_url: str | None = None,
    allow_message_replies: bool = False,
) -> A2AApp:
    """Return an ASGI app that serves a team over A2A: JSON-RPC, REST and the agent card.

    Args:
        target: The agent, runner or background runner to serve; a runner must have a store.
        auth: Who may call: a token, tokens by principal name, a function that verifies tokens, or auth schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes; messages may contain files.
        show_errors: Show callers the message of the exception that failed a task.
        context_factory: Creates the run's context object from the owner's name.
        store: The store for an agent's runs; without it they are kept in memory.
        url: The public URL of the service; by default the URL of each request.
        card: A complete agent card, or fields that replace those of the generated card.
        extended_card: The card for authenticated clients.
        sign_card: A function that signs the card.
        push_policy: Decides whether a webhook URL may be called.
        push_retry_delays: Seconds before each retry of a failed webhook call.
        compat_03: Serve protocol version 0.3 too.
        grpc_url: The address that the card names for the gRPC server passed to `A2AApp.add_to_grpc`.
        allow_message_replies: Let agents reply with a message instead of a task; streams then start when an agent
            has acted.

    Raises:
        SetupError: The runner has no store, or an argument is invalid.
    """
    background = to_background_runner(target, "a2a_app", store=store, lease_seconds=_LEASE_SECONDS)
    return A2AApp(
        background,
        RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body),
        cors_origins=cors_origins,
        show_errors=show_errors,
        context_factory=context_factory,
        url=url,
        card=card,
        extended_card=extended_card,
        compat_03=compat_03,
        sign_card=sign_card,
        push_policy=push_policy,
        push_retry_delays=push_retry_delays,
        allow_message_replies=allow_message_replies,
        grpc_url=grpc_url,
    )


async def _unknown_path(request: "Request", error: Exception) -> "Response":
    status = getattr(error, "status_code", 404)
    return to_error_response(MethodNotFoundError(message=f"unknown path or method: {request.method}"), status=status)
