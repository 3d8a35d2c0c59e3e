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
from tests.mcp.servers import call_tools, runner_with_calls, tool_results

from batonkit import Runner, SetupError
from batonkit.errors import ToolsUnavailableError
from batonkit.log import encode_log
from batonkit.mcp import AuthorizationCode, ClientCredentials, FileTokenStore, MCPToolset
from batonkit.runs import RunResult
from batonkit.testing import call

REDIRECT_URI = "http://localhost:3000/back"


def user_auth(**options: Any) -> AuthorizationCode:
    return AuthorizationCode(redirect_uri=REDIRECT_URI, **options)


async def authorize_all(result: RunResult[Any]) -> dict[str, Any]:
    """Authorize every open interrupt and return the answers."""
    assert all(interrupt.payload["kind"] == "authorization" for interrupt in result.interrupts)
    return {interrupt.id: await follow_redirects(interrupt.payload["url"]) for interrupt in result.interrupts}


async def test_auth_can_be_a_bearer_token_or_a_function_that_returns_headers() -> None:
    async with oauth_server() as servers:
        servers.tokens["good"] = {"read"}

        async def headers() -> dict[str, str]:
            return {"Authorization": "Bearer good"}

        assert await call_tools(MCPToolset(servers.url, auth="good"), ("read", {})) == ["read"]
        assert await call_tools(MCPToolset(servers.url, auth=headers), ("read", {})) == ["read"]
        with pytest.raises(ToolsUnavailableError, match="HTTP 401 Unauthorized"):
            await MCPToolset(servers.url, auth="bad").__aenter__()
        with pytest.raises(ToolsUnavailableError, match=r"authentication required: pass MCPToolset\(…, auth=…\)"):
            await MCPToolset(servers.url).__aenter__()
        assert servers.requests == []


async def test_client_credentials_obtain_one_token_for_several_runs() -> None:
    async with oauth_server() as servers:
        auth = ClientCredentials(client_id="client", client_secret=SECRET, issuer=servers.root)
        toolset = MCPToolset(servers.url, auth=auth)
        assert await call_tools(toolset, ("read", {})) == await call_tools(toolset, ("read", {})) == ["read"]
        assert servers.requests == ["client_credentials"]


async def test_client_credentials_can_use_a_private_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    async with oauth_server() as servers:
        servers.public_key = public.decode()
        auth = ClientCredentials(client_id="client", private_key=pem, algorithm="ES256", issuer=servers.root)
        assert await call_tools(MCPToolset(servers.url, auth=auth), ("read", {})) == ["read"]


async def test_client_credentials_are_sent_only_to_their_issuer() -> None:
    async with oauth_server() as servers:
        auth = ClientCredentials(client_id="client", client_secret=SECRET, issuer="https://elsewhere.example.org")
        with pytest.raises(ToolsUnavailableError, match=r"authorization for the server at .* failed"):
            await MCPToolset(servers.url, auth=auth).__aenter__()
        assert servers.requests == []


async def test_user_authorization_suspends_the_run() -> None:
    async with oauth_server() as servers:
        toolset = MCPToolset(servers.url, auth=user_auth())
        runner, model = runner_with_calls(toolset, [call("read")])
        result = await runner.run("hi")
        [question] = result.interrupts
        assert question.payload["server"] == f"the server at {servers.url}"
        assert question.payload["url"].startswith(f"{servers.root}/authorize?response_type=code&client_id=registered")
        assert not model.requests
        result = await runner.resume(result.run_id, await authorize_all(result))
        assert tool_results(result) == ["read"]
        assert servers.requests == ["register", "authorize read", "authorization_code"]
        # The next run and a replay need no authorization.
        assert await call_tools(toolset, ("read", {})) == ["read"]
        assert (await runner.runs.replay(result.events)).output == "done"
        assert len(servers.requests) == 3


async def test_the_redirect_can_be_answered_in_another_process_and_the_log_has_no_secrets(tmp_path: Path) -> None:
    async with oauth_server() as servers:

        def make_runner() -> Runner[Any, str]:
            toolset = MCPToolset(servers.url, auth=user_auth(tokens=FileTokenStore(tmp_path / "tokens")))
            return runner_with_calls(toolset, [call("read")])[0]

        first, second = make_runner(), make_runner()
        result = await first.run("hi")
        answers = await authorize_all(result)
        result = await second.resume(await second.runs.load(result.events), answers)
        assert tool_results(result) == ["read"]
        assert servers.requests == ["register", "authorize read", "authorization_code"]
        log = encode_log(result.events).decode()
        assert "token-" not in log
        assert "refresh-" not in log
        files = [*(tmp_path / "tokens").iterdir()]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert all("verifier" not in file.read_text() for file in files)


async def test_the_redirect_of_an_unknown_authorization_leads_to_a_new_interrupt() -> None:
    async with oauth_server() as servers:

        def make_runner() -> Runner[Any, str]:
            return runner_with_calls(MCPToolset(servers.url, auth=user_auth()), [call("read")])[0]

        first, second = make_runner(), make_runner()
        result = await first.run("hi")
        answers = await authorize_all(result)
        # The other process does not have the authorization, which was kept in memory.
        result = await second.resume(await second.runs.load(result.events), answers)
        [question] = result.interrupts
        assert question.id not in answers
        assert tool_results(await second.resume(result.run_id, await authorize_all(result))) == ["read"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the user declined to authorize it"),
        ({"state": "of this page", "error": "access_denied"}, "authorization was denied: access_denied"),
        ({"state": "of this page", "code": "made up"}, "Token exchange failed"),
    ],
)
async def test_a_declined_authorization_fails_the_run_and_can_be_retried(answer: Any, reason: str) -> None:
    async with oauth_server() as servers:
        runner, _ = runner_with_calls(MCPToolset(servers.url, auth=user_auth()), [call("read")])
        result = await runner.run("hi", run_id="r")
        if answer is not False:
            state = result.interrupts[0].payload["url"].partition("&state=")[2].partition("&")[0]
            answer = {**answer, "state": state}
        with pytest.raises(ToolsUnavailableError, match=reason):
            await runner.resume("r", answer)
        if answer is False:
            return
        result = await runner.resume("r")
        assert tool_results(await runner.resume("r", await authorize_all(result))) == ["read"]


async def test_an_expired_token_is_refreshed_without_the_user_even_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with oauth_server() as servers:

        def make_toolset() -> MCPToolset:
            return MCPToolset(
                servers.url, auth=user_auth(tokens=FileTokenStore(tmp_path), on_authorize=follow_redirects)
            )

        assert await call_tools(make_toolset(), ("read", {})) == ["read"]
        assert servers.requests == ["register", "authorize read", "authorization_code"]
        servers.tokens.clear()
        monkeypatch.setattr("batonkit.mcp.oauth.time", lambda: time() + 7200)
        assert await call_tools(make_toolset(), ("read", {})) == ["read"]
        assert servers.requests[3:] == ["refresh_token"]


async def test_repeated_authorization_requests_are_limited() -> None:
    async with oauth_server() as servers:
        servers.lifetime = 0
        with pytest.raises(ToolsUnavailableError, match="still not authorized after 3 authorizations"):
            await MCPToolset(servers.url, auth=user_auth(on_authorize=follow_redirects)).__aenter__()


async def test_a_call_that_needs_another_scope_suspends_and_runs_once() -> None:
    async with oauth_server() as servers:
        runner, _ = runner_with_calls(MCPToolset(servers.url, auth=user_auth()), [call("read"), call("write")])
        result = await runner.run("hi")
        result = await runner.resume(result.run_id, await authorize_all(result))
        [question] = result.interrupts
        assert question.tool_call is not None
        assert question.tool_call.name == "write"
        result = await runner.resume(result.run_id, await authorize_all(result))
        assert tool_results(result) == ["read", "written"]
        assert sorted(servers.calls) == ["read", "write"]
        assert servers.requests[-2:] == ["authorize read write", "authorization_code"]


async def test_on_authorize_works_outside_of_runs() -> None:
    async with (
        oauth_server() as servers,
        MCPToolset(servers.url, auth=user_auth(on_authorize=follow_redirects)) as toolset,
    ):
        assert servers.requests == ["register", "authorize read", "authorization_code"]
        assert await call_tools(toolset, ("write", {})) == ["written"]


@pytest.mark.parametrize("redirect", ["?code=1&state=another", "?code=1&state=%C3%BC", "http://[not a URL"])
async def test_a_redirect_that_does_not_belong_to_the_authorization_is_refused(redirect: str) -> None:
    async def wrong_redirect(url: str) -> str:
        return redirect

    async with oauth_server() as servers:
        with pytest.raises(
            ToolsUnavailableError, match="`on_authorize` returned a redirect that does not belong to its URL"
        ):
            await MCPToolset(servers.url, auth=user_auth(on_authorize=wrong_redirect)).__aenter__()


async def test_two_processes_can_store_a_value_in_the_same_file_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = FileTokenStore(tmp_path), FileTokenStore(tmp_path)
    replace = Path.replace

    def replace_after_the_other(file: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        asyncio.run(second.set("key", b"second"))
        return replace(file, target)

    # Processes in two containers may have the same id.
    monkeypatch.setattr(Path, "replace", replace_after_the_other)
    await first.set("key", b"first")
    assert await first.get("key") == await second.get("key") == b"first"
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [0o600]


async def test_a_shared_toolset_is_opened_by_the_first_authorized_run() -> None:
    async with oauth_server() as servers, MCPToolset(servers.url, auth=user_auth()) as toolset:
        runner, _ = runner_with_calls(toolset, [call("read")])
        result = await runner.run("hi")
        assert tool_results(await runner.resume(result.run_id, await authorize_all(result))) == ["read"]
        assert await call_tools(toolset, ("read", {})) == ["read"]


async def test_two_servers_interrupt_together_and_an_authorization_by_another_run_counts() -> None:
    async with oauth_server() as first_server, oauth_server() as second_server:
        auth = user_auth()
        toolsets = [
            MCPToolset(first_server.url, auth=auth, prefix="one"),
            MCPToolset(second_server.url, auth=auth, prefix="other"),
        ]
        runner, _ = runner_with_calls(toolsets, [call("one_read"), call("other_read")])
        result = await runner.run("hi")
        assert len(result.interrupts) == 2
        # Another run is authorized for the first server meanwhile.
        other_runner, _ = runner_with_calls(toolsets[0], [call("one_read")])
        second = await other_runner.run("hi")
        await other_runner.resume(second.run_id, await authorize_all(second))
        answers = await authorize_all(result)
        first = next(interrupt.id for interrupt in result.interrupts if first_server.root in interrupt.payload["url"])
        assert tool_results(await runner.resume(result.run_id, {**answers, first: True})) == ["read", "read"]


async def test_calls_with_a_valid_token_run_concurrently() -> None:
    async with oauth_server() as servers:
        toolset = MCPToolset(servers.url, auth=user_auth(on_authorize=follow_redirects))
        runner, _ = runner_with_calls(toolset, [call("wait_for_others") for _ in range(5)])
        # The server answers only after all five calls have arrived.
        assert tool_results(await runner.run("hi")) == ["done together"] * 5


def test_invalid_auth_is_refused_and_secrets_are_hidden() -> None:
    with pytest.raises(SetupError, match="takes a token, a function that returns headers"):
        MCPToolset("https://example.org/mcp", auth=42)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match=r"takes a token, .* not an empty text"):
        MCPToolset("https://example.org/mcp", auth="")
    with pytest.raises(SetupError, match="headers and auth apply only to URLs"):
        MCPToolset("uvx mcp-server-time", auth="token")
    with pytest.raises(SetupError, match="either a client_secret or a private_key"):
        ClientCredentials(client_id="a", issuer="https://example.org")
    auth = ClientCredentials(client_id="a", client_secret="hidden", issuer="https://example.org")
    assert "hidden" not in repr(auth)
    assert "hidden" not in repr(user_auth(client_id="a", client_secret="hidden"))


async def test_concurrent_runs_share_one_authorization_page() -> None:
    async with oauth_server() as servers:
        toolset = MCPToolset(servers.url, auth=user_auth())
        runners = [runner_with_calls(toolset, [call("read")])[0] for _ in range(5)]
        suspended = await asyncio.gather(*[runner.run("hi") for runner in runners])
        assert len({result.interrupts[0].payload["url"] for result in suspended}) == 1
        assert servers.requests == ["register"]
