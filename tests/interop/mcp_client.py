"""The client that the official conformance kit of MCP starts and looks at: an agent whose tools are the kit's server's.

The kit says in the environment which scenario it plays and what the client is to know, and gives the server's address.
"""

import asyncio
import json
import os
import sys
from typing import Any, cast

import httpx2
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

from batonkit import Agent, Runner
from batonkit.mcp import AuthorizationCode, ClientCredentials, MCPToolset, MemoryTokenStore
from batonkit.mcp.oauth import ServerCredentials
from batonkit.messages import ToolMessage, ToolSpec
from batonkit.models import ModelRequest
from batonkit.runs import Interrupt
from batonkit.testing import ScriptedModel, call

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


def _example(schema: dict[str, Any]) -> Any:
    """Something that fits the schema, as far as the kit's tools need it."""
    if "default" in schema:
        return schema["default"]
    match schema.get("type"):
        case "object":
            properties: dict[str, Any] = schema.get("properties", {})
            return {name: _example(properties[name]) for name in schema.get("required", ())}
        case "integer" | "number":
            return 5
        case "boolean":
            return True
        case "array":
            return []
        case _:
            return "example"


def _calls(tools: "tuple[ToolSpec, ...]") -> list[Any]:
    """The calls the scenario wants: those it names, or one of each tool."""
    if "toolCalls" in CONTEXT:
        return [call(wanted["name"], **wanted["arguments"]) for wanted in CONTEXT["toolCalls"]]
    schemas = {tool.name: tool.parameters for tool in tools}
    given = {name: _example(schema) for name, schema in schemas.items()}
    if "json_schema_echo" in given:
        given["json_schema_echo"] = {"schema": schemas["json_schema_2020_12_tool"]}
    return [call(name, **arguments) for name, arguments in given.items()]


def _step(request: ModelRequest) -> Any:
    """One call after the other, then an end."""
    wanted = _calls(tuple(request.tools))
    made = sum(isinstance(message, ToolMessage) for message in request.messages)
    return wanted[made] if made < len(wanted) else "done"


async def _answer(question: Interrupt) -> Any:
    """Answer like a person: open the page of an authorization, or accept the defaults of a form."""
    if question.payload["kind"] != "authorization":
        return {}
    async with httpx2.AsyncClient() as browser:
        page = await browser.get(question.payload["url"])
    return page.headers["location"]


async def _auth(url: str) -> Any:
    """Create the credentials of the client for this scenario."""
    client = {name: CONTEXT[name] for name in ("client_id", "client_secret", "issuer") if name in CONTEXT}
    if SCENARIO == "auth/enterprise-managed-authorization":
        return IdentityAssertionOAuthProvider(
            url,
            ServerCredentials(MemoryTokenStore(), url),
            **client,
            issuer=await _issuer_for(url),
            assertion_provider=_assertion,
            token_endpoint_auth_method="client_secret_basic",
        )
    if SCENARIO.startswith("auth/client-credentials"):
        key = {"private_key": CONTEXT["private_key_pem"]} if "private_key_pem" in CONTEXT else {}
        algorithm = CONTEXT.get("signing_algorithm", "RS256")
        return ClientCredentials(**client, **key, algorithm=algorithm, issuer=await _issuer_for(url))
    return AuthorizationCode(
        redirect_uri="http://localhost:3000/callback",
        client_metadata_url="https://conformance-test.local/client-metadata.json",
        **client,
    )


async def _assertion(audience: str, resource: str) -> str:
    """Exchange the user's token for an assertion of the enterprise's identity provider."""
    wanted = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "subject_token": CONTEXT["idp_id_token"],
        "client_id": CONTEXT["idp_client_id"],
        "audience": audience,
        "resource": resource,
    }
    async with httpx2.AsyncClient() as browser:
        given = await browser.post(CONTEXT["idp_token_endpoint"], data=wanted)
    return given.json()["access_token"]


async def _issuer_for(url: str) -> str:
    """Where the server sends its clients. A real program is told this by those who gave it its credentials."""
    place = httpx2.URL(url)
    async with httpx2.AsyncClient() as browser:
        found = await browser.get(place.copy_with(path=f"/.well-known/oauth-protected-resource{place.path}"))
    return found.json()["authorization_servers"][0]


async def main(url: str) -> int:
    """Play the scenario; the exit code."""
    server = MCPToolset(url, auth=await _auth(url) if SCENARIO.startswith("auth/") else None)
    runner = Runner(Agent("Client", tools=[server], model=ScriptedModel([_step], cycle=True)))
    result = await runner.run("Go.")
    while result.status == "suspended":
        answers = {asked.id: await _answer(asked) for asked in result.interrupts}
        result = await runner.resume(result.run_id, answers)
    for message in result.messages:
        if isinstance(message, ToolMessage):
            print(f"{message.name}: {cast('object', message.content)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
