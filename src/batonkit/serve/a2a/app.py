"""The `a2a_app` factory, the app that it returns, and the agent card."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from os import PathLike
from time import time
from typing import Any

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH as CARD_PATH
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol
from a2a.utils.errors import MethodNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..._checks import check_arguments
from ...agents import BaseAgent
from ...errors import SetupError
from ...runs import ContextFactory
from ...stores import Store
from ...team import Team
from ...version import __version__
from ..http.application import AppTarget, make_app, to_background_runner
from ..http.auth import Auth, AuthLike
from ..http.guard import RequestGuard
from ..server import serve
from .bindings import HTTPBindings, to_error_response
from .broadcast import TaskBroadcasts
from .handler import A2ARequestGuard, A2ARequestHandler
from .legacy import LegacyTranslator
from .projection import TaskReader
from .push import RETRY_DELAYS, PushNotifier, PushPolicy, allow_public_urls
from .task_store import TaskService

INPUT_MODES = (
    *("text/plain", "text/markdown", "text/csv", "text/html", "application/json", "application/pdf"),
    *("image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg"),
)
_IRREGULAR_SCHEMES = {"http": "httpAuth", "mutualTLS": "mtls"}
OUTPUT_MODES = ("text/plain", "application/json")


def make_card(team: Team, given: pb.AgentCard | Mapping[str, Any] | None, auth: Sequence[Auth]) -> pb.AgentCard:
    """Return the agent card of a team.

    Raises:
        SetupError: `given` has an unknown field, or a scheme cannot be declared in a card.
    """
    card = pb.AgentCard()
    card.CopyFrom(given if isinstance(given, pb.AgentCard) else _generate_card(team))
    if given and not isinstance(given, pb.AgentCard):
        _update_card(card, given)
    if auth and not card.security_schemes:
        for scheme in auth:
            card.security_schemes[scheme.name].CopyFrom(_to_card_scheme(scheme))
            card.security_requirements.append(pb.SecurityRequirement(schemes={scheme.name: pb.StringList()}))
    return card


def _to_card_scheme(auth: Auth) -> pb.SecurityScheme:
    # A card has the fields of OpenAPI, in a field named after the type.
    fields = dict(auth.openapi_scheme())
    kind = str(fields.pop("type", ""))
    if "in" in fields:
        fields["location"] = fields.pop("in")
    try:
        return ParseDict({f"{_IRREGULAR_SCHEMES.get(kind, kind)}SecurityScheme": fields}, pb.SecurityScheme())
    except ParseError as error:
        raise SetupError(f"the auth scheme `{auth.name}` cannot be declared in an agent card: {error}") from None


def _generate_card(team: Team) -> pb.AgentCard:
    root = team.members[team.root].agent
    return pb.AgentCard(
        name=root.name,
        description=root.description or root.name,
        version=__version__,
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=INPUT_MODES,
        default_output_modes=OUTPUT_MODES,
        skills=[_skill(seat.agent, "root" if name == root.name else "agent") for name, seat in team.members.items()],
    )


def _skill(agent: BaseAgent[Any, Any], tag: str) -> pb.AgentSkill:
    return pb.AgentSkill(id=agent.name, name=agent.name, description=agent.description or agent.name, tags=[tag])


def _update_card(card: pb.AgentCard, given: Mapping[str, Any]) -> None:
    try:
        update = ParseDict(dict(given), pb.AgentCard())
    except ParseError as error:
        raise SetupError(f"a2a_app(card=…) is not an agent card: {error}") from None
    for field, _ in update.ListFields():
        card.ClearField(field.name)
    card.MergeFrom(update)


_LEASE_SECONDS = 5.0


@dataclass(kw_only=True, eq=False)
class CardEndpoint:
    """The agent card with the interfaces of the service."""

    card: pb.AgentCard
    url: str | None
    grpc_url: str | None
    compat_03: bool
    sign: Callable[[pb.AgentCard], pb.AgentCard] | None

    def __post_init__(self) -> None:
        self._modified_at = formatdate(time(), usegmt=True)

    def _with_interfaces(self, url: str) -> pb.AgentCard:
        card = pb.AgentCard()
        card.CopyFrom(self.card)
        if card.supported_interfaces:
            return card
        base = url.rstrip("/")
        http = [(TransportProtocol.JSONRPC, f"{base}/"), (TransportProtocol.HTTP_JSON, base)]
        interfaces = [(PROTOCOL_VERSION_1_0, *each) for each in http]
        if self.compat_03:
            interfaces += [(PROTOCOL_VERSION_0_3, *each) for each in http]
        if self.grpc_url:
            interfaces.append((PROTOCOL_VERSION_1_0, TransportProtocol.GRPC, self.grpc_url))
        for version, binding, address in interfaces:
            card.supported_interfaces.add(url=address, protocol_binding=binding, protocol_version=version)
        return card

    async def handle(self, request: Request) -> Response:
        """Return the card, or 304 if the client has it already."""
        # Not `base_url`: for a mounted app, that is the URL of the outer app.
        request_url = f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}"
        card = self._with_interfaces(self.url or request_url)
        if self.sign is not None:
            card = self.sign(card)
        content = agent_card_to_dict(card) if self.compat_03 else MessageToDict(card)
        # Signatures of the same card may differ each time.
        unsigned = {key: value for key, value in content.items() if key != "signatures"}
        digest = hashlib.sha256(json.dumps(unsigned, sort_keys=True).encode()).hexdigest()
        headers = {"ETag": f'W/"{digest}"', "Last-Modified": self._modified_at, "Cache-Control": "public, max-age=60"}
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if f'"{digest}"' in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return JSONResponse(content, headers=headers)


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
        tasks: TaskService,
        guard: RequestGuard,
        cards: CardEndpoint,
        *,
        cors_origins: Sequence[str],
        extended_card: pb.AgentCard | None,
    ) -> None:
        self.runner = tasks.background.runner
        self.card = cards.card
        self._tasks = tasks
        self._is_authenticated = bool(guard.auth)
        self.handler = A2ARequestHandler(tasks, self.card, extended_card, self._is_authenticated)
        self._guard = A2ARequestGuard(self.card, guard)
        # Not the SDK's route factories: they build the call context synchronously, so they cannot await an auth scheme,
        # and their dispatchers send exception texts to clients.
        legacy = LegacyTranslator(self.handler, self._guard) if cards.compat_03 else None
        routes = HTTPBindings(self.handler, self._guard, legacy).routes()
        # Some clients of 0.3 look for the card at the URL that it names.
        for path in (CARD_PATH, "/") if cards.compat_03 else (CARD_PATH,):
            routes.append(Route(path, guard.protect(cards.handle), methods=["GET"]))
        self._app = make_app(
            routes,
            tasks.background,
            close=self.close,
            cors_origins=cors_origins,
            handlers=dict.fromkeys((404, 405), _unknown_path),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.start()
        await self._app(scope, receive, send)

    def add_to_grpc(self, server: Any) -> None:
        """Add the service to a `grpc.aio` server, with the same tasks, authentication and checks.

        Args:
            server: The server, before it is started.
        """
        from .grpc import GRPCBinding

        GRPCBinding(self.handler, self._guard).add_to(server)
        self.start()

    def start(self) -> None:
        """Start to take over abandoned tasks, as the first request does. Safe to call again."""
        self._tasks.background.start_recovery()

    async def close(self) -> None:
        """Let turns in flight finish, leave the tasks to other processes, and close the runner."""
        await self._tasks.close()
        await self._tasks.push.close()
        await self.runner.close()

    def run(
        self, host: str = "127.0.0.1", port: int = 8000, *, allow_anonymous: bool = False, drain: float = 10.0
    ) -> None:
        """Serve the app until the process is stopped.

        Args:
            host: The address to listen on.
            port: The port to listen on.
            allow_anonymous: Accept a `host` that other machines can reach although the app has no `auth`.
            drain: Seconds for turns in flight to finish when the process is stopped.

        Raises:
            SetupError: Other machines can reach `host`, and the app neither has `auth` nor allows anonymous access.
        """
        serve(self, host=host, port=port, allow_anonymous=allow_anonymous or self._is_authenticated, drain=drain)


@check_arguments
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
    card: pb.AgentCard | Mapping[str, Any] | None = None,
    extended_card: pb.AgentCard | None = None,
    sign_card: Callable[[pb.AgentCard], pb.AgentCard] | None = None,
    push_policy: PushPolicy = allow_public_urls,
    push_retry_delays: Sequence[float] = RETRY_DELAYS,
    compat_03: bool = False,
    grpc_url: str | None = None,
    allow_message_replies: bool = False,
) -> A2AApp:
    """Return an ASGI app that serves a team over A2A: JSON-RPC, REST and the agent card.

    Args:
        target: The agent, runner or background runner to serve; a runner must have a store.
        auth: The accepted credentials: a token, tokens by principal name, a function that verifies tokens, or schemes.
        allow_anonymous: Without `auth`, accept requests from other machines too.
        cors_origins: Origins whose pages may call the app.
        max_body: The largest accepted body in bytes; messages may contain files.
        show_errors: Show callers the message of the exception that failed a task.
        context_factory: Creates the context of a run from its record; by default the runner's own.
        store: The store for an agent's runs; without it they are kept in memory.
        url: The public URL of the service; by default the URL of each request.
        card: A complete agent card, or fields that replace those of the generated card.
        extended_card: The card for authenticated clients.
        sign_card: A function that signs the card.
        push_policy: Decides whether a webhook URL may be called, from the URL and the IP addresses of its host.
        push_retry_delays: Seconds before each retry of a failed webhook call.
        compat_03: Serve protocol version 0.3 too.
        grpc_url: The address that the card names for the gRPC server passed to `A2AApp.add_to_grpc`.
        allow_message_replies: Let agents reply with a message instead of a task; streams then start when an agent
            has acted.

    Raises:
        SetupError: The runner has no store, or an argument is invalid.
    """
    background = to_background_runner(target, "a2a_app", context_factory, store=store, lease_seconds=_LEASE_SECONDS)
    guard = RequestGuard(auth, allow_anonymous=allow_anonymous, max_body=max_body, cors_origins=cors_origins)
    reader = TaskReader(background.runner._require_store("a2a_app"), show_errors=show_errors)
    push = PushNotifier(reader, policy=push_policy, delays=push_retry_delays)
    broadcasts = TaskBroadcasts(background, push.notify)
    tasks = TaskService(background, broadcasts, reader, push, allow_message_replies)
    own_card = make_card(background.runner.team, card, guard.auth)
    if extended_card is not None:
        own_card.capabilities.extended_agent_card = True
    cards = CardEndpoint(card=own_card, url=url, grpc_url=grpc_url, compat_03=compat_03, sign=sign_card)
    return A2AApp(tasks, guard, cards, cors_origins=cors_origins, extended_card=extended_card)


async def _unknown_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return to_error_response(MethodNotFoundError(f"unknown path or method: {request.method}"), status=status)
