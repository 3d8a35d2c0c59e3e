"""An MCP server that requires OAuth and its authorization server, over real sockets."""

import asyncio
import hashlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx2
import jwt
from mcp.server.mcpserver import MCPServer as SDKServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from tests.mcp.servers import served
from tests.ports import reserved_port
from tests.waiting import PATIENCE

SECRET = "the client's secret"


class OAuthServers:
    """The state of both servers and the requests they received."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.requests: list[str] = []
        """The requests to the authorization server, in order."""
        self.calls: list[str] = []
        self.tokens: dict[str, set[str]] = {}
        """The scopes of each valid token."""
        self.lifetime = 3600
        self.public_key: str | None = None
        self.barrier = asyncio.Barrier(5)
        self._codes: dict[str, tuple[str, str]] = {}
        self._numbers = count(1)

    @property
    def url(self) -> str:
        return f"{self.root}/mcp"

    def app(self) -> Any:
        server = SDKServer("guarded")

        @server.tool()
        async def read() -> str:
            self.calls.append("read")
            return "read"

        @server.tool()
        async def write() -> str:
            self.calls.append("write")
            return "written"

        @server.tool()
        async def wait_for_others() -> str:
            await self.barrier.wait()
            return "done together"

        app: Any = server.streamable_http_app(json_response=True)
        routes = [
            Route("/.well-known/oauth-protected-resource/mcp", self._resource),
            Route("/.well-known/oauth-authorization-server", self._metadata),
            Route("/register", self._register, methods=["POST"]),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Mount("/", self._require_token(app)),
        ]
        return Starlette(routes=routes, lifespan=lambda _: app.router.lifespan_context(app))

    def _require_token(self, app: Any) -> Any:
        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            request = Request(scope, receive)
            body = await request.body()
            required_scope = "write" if b'"name":"write"' in body.replace(b" ", b"") else "read"
            granted = self.tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
            challenge = (
                f'Bearer resource_metadata="{self.root}/.well-known/oauth-protected-resource/mcp", '
                f'scope="{required_scope}"'
            )
            if granted is None:
                await Response(status_code=401, headers={"www-authenticate": challenge})(scope, receive, send)
            elif required_scope not in granted:
                challenge = f'{challenge}, error="insufficient_scope"'
                await Response(status_code=403, headers={"www-authenticate": challenge})(scope, receive, send)
            else:
                await app(scope, _replay_body(body, receive), send)

        return guarded

    async def _resource(self, request: Request) -> Response:
        return JSONResponse({"resource": self.url, "authorization_servers": [self.root]})

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.root,
                "authorization_endpoint": f"{self.root}/authorize",
                "token_endpoint": f"{self.root}/token",
                "registration_endpoint": f"{self.root}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def _register(self, request: Request) -> Response:
        self.requests.append("register")
        client_metadata = await request.json()
        return JSONResponse({**client_metadata, "client_id": "registered", "token_endpoint_auth_method": "none"}, 201)

    async def _authorize(self, request: Request) -> Response:
        fields = request.query_params
        self.requests.append(f"authorize {fields['scope']}")
        code = f"code-{next(self._numbers)}"
        self._codes[code] = fields["code_challenge"], fields["scope"]
        return RedirectResponse(f"{fields['redirect_uri']}?code={code}&state={fields['state']}")

    async def _token(self, request: Request) -> Response:
        form = await request.form()
        self.requests.append(str(form["grant_type"]))
        match form["grant_type"]:
            case "authorization_code":
                challenge, scope = self._codes.pop(str(form["code"]), ("", ""))
                digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
                is_valid = urlsafe_b64encode(digest).decode().rstrip("=") == challenge
            case "refresh_token":
                is_valid, scope = str(form["refresh_token"]).startswith("refresh-"), "read"
            case _:
                is_valid, scope = self._is_valid_client(request, str(form.get("client_assertion", ""))), "read"
        if not is_valid:
            return JSONResponse({"error": "invalid_grant"}, 400)
        number = next(self._numbers)
        self.tokens[f"token-{number}"] = set(scope.split())
        token = {"access_token": f"token-{number}", "token_type": "Bearer", "refresh_token": f"refresh-{number}"}
        return JSONResponse({**token, "expires_in": self.lifetime, "scope": scope})

    def _is_valid_client(self, request: Request, assertion: str) -> bool:
        if assertion and self.public_key is not None:
            return jwt.decode(assertion, self.public_key, ["ES256"], audience=self.root)["iss"] == "client"
        credentials = b64decode(request.headers.get("authorization", "").removeprefix("Basic ")).decode()
        return credentials == f"client:{SECRET.replace(' ', '%20').replace(chr(39), '%27')}"


def _replay_body(body: bytes, receive: Any) -> Any:
    """Return a receive function that delivers a body that was already read."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return messages.pop() if messages else await receive()

    return receive_again


@asynccontextmanager
async def oauth_server() -> AsyncGenerator[OAuthServers]:
    """Run both servers at one port."""
    with reserved_port() as port:
        servers = OAuthServers(port)
        async with served(servers.app(), port):
            yield servers


async def follow_redirects(url: str) -> str:
    """Act as a browser whose user authorizes the client; return the URL of the redirect."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as browser:
        return (await browser.get(url)).headers["location"]
