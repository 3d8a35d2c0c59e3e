"""The card of a service: what a team can do, how it is reached, and what callers must bring."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol
from google.protobuf.json_format import ParseDict, ParseError

from ...errors import SetupError
from ...flow import Team
from ..http import Auth

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
    root = team.seats[team.root].agent
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
            for name, seat in team.seats.items()
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
