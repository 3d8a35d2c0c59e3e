"""Authentication: tokens, client credentials and authorization codes."""

import asyncio
import stat
from pathlib import Path
from time import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.mcp.oauth_server import SECRET, follow_redirects, oauth_server
from tests.mcp.servers import caller, calls, results

from baton import Runner, SetupError
from baton.errors import ToolsUnavailableError
from baton.events import encode_log
from baton.mcp import AuthorizationCode, ClientCredentials, FileTokenStore, MCPToolset
from baton.runner import RunResult
from baton.testing import call

BACK = "http://localhost:3000/back"


def user_auth(**facts: Any) -> AuthorizationCode:
    return AuthorizationCode(redirect_uri=BACK, **facts)


async def visit_pages(result: RunResult[Any]) -> dict[str, Any]:
    """The answers of a user who visits each page that a run waits for."""
    assert all(asked.payload["kind"] == "authorization" for asked in result.interrupts)
    return {asked.id: await follow_redirects(asked.payload["url"]) for asked in result.interrupts}


async def test_bearer_token_and_header_function() -> None:
    async with oauth_server() as servers:
        servers.tokens["good"] = {"read"}

        async def headers() -> dict[str, str]:
            return {"Authorization": "Bearer good"}

        assert await calls(MCPToolset(servers.url, auth="good"), ("read", {})) == ["read"]
        assert await calls(MCPToolset(servers.url, auth=headers), ("read", {})) == ["read"]
        with pytest.raises(ToolsUnavailableError, match="HTTP 401 Unauthorized"):
            await MCPToolset(servers.url, auth="bad").__aenter__()
        with pytest.raises(ToolsUnavailableError, match=r"authentication required: pass MCPToolset\(…, auth=…\)"):
            await MCPToolset(servers.url).__aenter__()
        assert servers.asked == []


async def test_client_credentials_obtain_one_token() -> None:
    async with oauth_server() as servers:
        auth = ClientCredentials(client_id="client", client_secret=SECRET, issuer=servers.root)
        source = MCPToolset(servers.url, auth=auth)
        assert await calls(source, ("read", {})) == await calls(source, ("read", {})) == ["read"]
        assert servers.asked == ["client_credentials"]


async def test_client_credentials_with_a_private_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    async with oauth_server() as servers:
        servers.public_key = public.decode()
        auth = ClientCredentials(client_id="client", private_key=pem, algorithm="ES256", issuer=servers.root)
        assert await calls(MCPToolset(servers.url, auth=auth), ("read", {})) == ["read"]


async def test_credentials_are_sent_only_to_their_issuer() -> None:
    async with oauth_server() as servers:
        auth = ClientCredentials(client_id="client", client_secret=SECRET, issuer="https://elsewhere.example.org")
        with pytest.raises(ToolsUnavailableError, match=r"authorization for the server at .* failed"):
            await MCPToolset(servers.url, auth=auth).__aenter__()
        assert servers.asked == []


async def test_user_authorization_suspends_the_run() -> None:
    async with oauth_server() as servers:
        source = MCPToolset(servers.url, auth=user_auth())
        runner, model = caller(source, [call("read")])
        result = await runner.run("hi")
        [question] = result.interrupts
        assert question.payload["server"] == f"the server at {servers.url}"
        assert question.payload["url"].startswith(f"{servers.root}/authorize?response_type=code&client_id=registered")
        assert not model.requests
        result = await runner.resume(result.run_id, await visit_pages(result))
        assert results(result) == ["read"]
        assert servers.asked == ["register", "authorize read", "authorization_code"]
        # The next run needs no leave any more, and the log can be gone through without anybody.
        assert await calls(source, ("read", {})) == ["read"]
        assert (await runner.replay(result.events)).output == "done"
        assert len(servers.asked) == 3


async def test_redirect_may_reach_another_process_and_the_log_holds_no_secret(tmp_path: Path) -> None:
    async with oauth_server() as servers:

        def fresh() -> Runner[Any, str]:
            source = MCPToolset(servers.url, auth=user_auth(tokens=FileTokenStore(tmp_path / "tokens")))
            return caller(source, [call("read")])[0]

        first, second = fresh(), fresh()
        result = await first.run("hi")
        answers = await visit_pages(result)
        result = await second.resume(second.load_log(result.events), answers)
        assert results(result) == ["read"]
        assert servers.asked == ["register", "authorize read", "authorization_code"]
        log = encode_log(result.events).decode()
        assert "token-" not in log
        assert "refresh-" not in log
        files = [*(tmp_path / "tokens").iterdir()]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert all("verifier" not in file.read_text() for file in files)


async def test_redirect_of_a_forgotten_authorization_leads_to_a_new_page() -> None:
    async with oauth_server() as servers:

        def fresh() -> Runner[Any, str]:
            return caller(MCPToolset(servers.url, auth=user_auth()), [call("read")])[0]

        first, second = fresh(), fresh()
        result = await first.run("hi")
        answers = await visit_pages(result)
        # What was kept in memory is gone in the other process.
        result = await second.resume(second.load_log(result.events), answers)
        [question] = result.interrupts
        assert question.id not in answers
        assert results(await second.resume(result.run_id, await visit_pages(result))) == ["read"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the user declined to authorize it"),
        ({"state": "of this page", "error": "access_denied"}, "authorization was denied: access_denied"),
        ({"state": "of this page", "code": "made up"}, "Token exchange failed"),
    ],
)
async def test_declined_authorization_fails_the_run_and_can_be_retried(answer: Any, reason: str) -> None:
    async with oauth_server() as servers:
        runner, _ = caller(MCPToolset(servers.url, auth=user_auth()), [call("read")])
        result = await runner.run("hi", run_id="r")
        if answer is not False:
            state = result.interrupts[0].payload["url"].partition("&state=")[2].partition("&")[0]
            answer = {**answer, "state": state}
        with pytest.raises(ToolsUnavailableError, match=reason):
            await runner.resume("r", answer)
        if answer is False:
            return
        result = await runner.resume("r")
        assert results(await runner.resume("r", await visit_pages(result))) == ["read"]


async def test_expired_token_is_refreshed_without_the_user_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with oauth_server() as servers:

        def source() -> MCPToolset:
            return MCPToolset(
                servers.url, auth=user_auth(tokens=FileTokenStore(tmp_path), on_authorize=follow_redirects)
            )

        assert await calls(source(), ("read", {})) == ["read"]
        assert servers.asked == ["register", "authorize read", "authorization_code"]
        servers.tokens.clear()
        monkeypatch.setattr("baton.mcp.oauth.time", lambda: time() + 7200)
        assert await calls(source(), ("read", {})) == ["read"]
        assert servers.asked[3:] == ["refresh_token"]


async def test_repeated_authorization_requests_are_limited() -> None:
    async with oauth_server() as servers:
        servers.lifetime = 0
        with pytest.raises(ToolsUnavailableError, match="still not authorized after 3 authorizations"):
            await MCPToolset(servers.url, auth=user_auth(on_authorize=follow_redirects)).__aenter__()


async def test_call_that_needs_more_scope_waits_and_runs_once() -> None:
    async with oauth_server() as servers:
        runner, _ = caller(MCPToolset(servers.url, auth=user_auth()), [call("read"), call("write")])
        result = await runner.run("hi")
        result = await runner.resume(result.run_id, await visit_pages(result))
        [question] = result.interrupts
        assert question.tool_call is not None
        assert question.tool_call.name == "write"
        result = await runner.resume(result.run_id, await visit_pages(result))
        assert results(result) == ["read", "written"]
        assert sorted(servers.calls) == ["read", "write"]
        assert servers.asked[-2:] == ["authorize read write", "authorization_code"]


async def test_on_authorize_works_outside_of_runs() -> None:
    async with oauth_server() as servers:
        async with MCPToolset(servers.url, auth=user_auth(on_authorize=follow_redirects)) as source:
            assert servers.asked == ["register", "authorize read", "authorization_code"]
            assert await calls(source, ("write", {})) == ["written"]

        async def lost(url: str) -> str:
            return f"{BACK}?code=1&state=another"

        with pytest.raises(
            ToolsUnavailableError, match="`on_authorize` returned a redirect that does not belong to its URL"
        ):
            await MCPToolset(servers.url, auth=user_auth(on_authorize=lost)).__aenter__()


async def test_shared_toolset_without_authorization_is_opened_by_the_first_authorized_run() -> None:
    async with oauth_server() as servers, MCPToolset(servers.url, auth=user_auth()) as source:
        runner, _ = caller(source, [call("read")])
        result = await runner.run("hi")
        assert results(await runner.resume(result.run_id, await visit_pages(result))) == ["read"]
        assert await calls(source, ("read", {})) == ["read"]


async def test_two_servers_ask_at_once_and_authorization_by_another_run_counts() -> None:
    async with oauth_server() as one, oauth_server() as other:
        auth = user_auth()
        sources = [MCPToolset(one.url, auth=auth, prefix="one"), MCPToolset(other.url, auth=auth, prefix="other")]
        runner, _ = caller(sources, [call("one_read"), call("other_read")])
        result = await runner.run("hi")
        assert len(result.interrupts) == 2
        # Another run gets leave for the first of them meanwhile.
        elsewhere, _ = caller(sources[0], [call("one_read")])
        second = await elsewhere.run("hi")
        await elsewhere.resume(second.run_id, await visit_pages(second))
        answers = await visit_pages(result)
        first = next(asked.id for asked in result.interrupts if one.root in asked.payload["url"])
        assert results(await runner.resume(result.run_id, {**answers, first: True})) == ["read", "read"]


async def test_calls_with_a_valid_token_run_concurrently() -> None:
    async with oauth_server() as servers:
        source = MCPToolset(servers.url, auth=user_auth(on_authorize=follow_redirects))
        runner, _ = caller(source, [call("gather") for _ in range(5)])
        # Each waits on the server until all are there; it answers them only then.
        assert results(await runner.run("hi")) == ["together"] * 5


def test_invalid_auth_is_refused_and_secrets_are_hidden() -> None:
    with pytest.raises(SetupError, match="takes a token, a function that returns headers"):
        MCPToolset("https://example.org/mcp", auth=42)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="headers and auth apply only to URLs"):
        MCPToolset("uvx mcp-server-time", auth="token")
    with pytest.raises(SetupError, match="either a client_secret or a private_key"):
        ClientCredentials(client_id="a", issuer="https://example.org")
    auth = ClientCredentials(client_id="a", client_secret="hidden", issuer="https://example.org")
    assert "hidden" not in repr(auth)
    assert "hidden" not in repr(user_auth(client_id="a", client_secret="hidden"))


async def test_concurrent_runs_share_one_authorization_page() -> None:
    async with oauth_server() as servers:
        source = MCPToolset(servers.url, auth=user_auth())
        runners = [caller(source, [call("read")])[0] for _ in range(5)]
        waiting = await asyncio.gather(*[runner.run("hi") for runner in runners])
        assert len({result.interrupts[0].payload["url"] for result in waiting}) == 1
        assert servers.asked == ["register"]
