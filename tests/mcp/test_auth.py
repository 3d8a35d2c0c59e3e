"""How a client shows a server who it is: by a token, by credentials of its own, by the leave of a user."""

import asyncio
import stat
from pathlib import Path
from time import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.mcp.guarded import SECRET, guarded, visited
from tests.mcp.servers import caller, calls, results

from baton import Runner, SetupError
from baton.errors import ToolsUnavailableError
from baton.events import encode_log
from baton.mcp import AuthorizationCode, ClientCredentials, FileTokenStore, MCPToolset
from baton.runner import RunResult
from baton.testing import call

BACK = "http://localhost:3000/back"


def leave(**facts: Any) -> AuthorizationCode:
    return AuthorizationCode(redirect_uri=BACK, **facts)


async def visit_for(result: RunResult[Any]) -> dict[str, Any]:
    """The answers of a user who visits each page that a run waits for."""
    assert all(asked.payload["kind"] == "authorization" for asked in result.interrupts)
    return {asked.id: await visited(asked.payload["url"]) for asked in result.interrupts}


async def test_a_token_or_headers_that_a_function_gives_are_shown_with_each_request() -> None:
    async with guarded() as servers:
        servers.tokens["good"] = {"read"}

        async def headers() -> dict[str, str]:
            return {"Authorization": "Bearer good"}

        assert await calls(MCPToolset(servers.url, auth="good"), ("read", {})) == ["read"]
        assert await calls(MCPToolset(servers.url, auth=headers), ("read", {})) == ["read"]
        with pytest.raises(ToolsUnavailableError, match="HTTP 401 Unauthorized"):
            await MCPToolset(servers.url, auth="bad").__aenter__()
        with pytest.raises(ToolsUnavailableError, match=r"it wants to know who asks: MCPToolset\(…, auth=…\)"):
            await MCPToolset(servers.url).__aenter__()
        assert servers.asked == []


async def test_a_program_with_credentials_of_its_own_gets_a_token_once() -> None:
    async with guarded() as servers:
        auth = ClientCredentials(client_id="client", client_secret=SECRET, issuer=servers.root)
        source = MCPToolset(servers.url, auth=auth)
        assert await calls(source, ("read", {})) == await calls(source, ("read", {})) == ["read"]
        assert servers.asked == ["client_credentials"]


async def test_a_program_can_sign_instead_of_telling_a_secret() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    async with guarded() as servers:
        servers.public_key = public.decode()
        auth = ClientCredentials(client_id="client", private_key=pem, algorithm="ES256", issuer=servers.root)
        assert await calls(MCPToolset(servers.url, auth=auth), ("read", {})) == ["read"]


async def test_credentials_are_shown_to_nobody_but_the_issuer_they_are_for() -> None:
    async with guarded() as servers:
        auth = ClientCredentials(client_id="client", client_secret=SECRET, issuer="https://elsewhere.example.org")
        with pytest.raises(ToolsUnavailableError, match="there is no leave to use"):
            await MCPToolset(servers.url, auth=auth).__aenter__()
        assert servers.asked == []


async def test_a_user_gives_leave_by_visiting_a_page_while_the_run_is_suspended() -> None:
    async with guarded() as servers:
        source = MCPToolset(servers.url, auth=leave())
        runner, model = caller(source, [call("read")])
        result = await runner.run("hi")
        [question] = result.interrupts
        assert question.payload["server"] == f"the server at {servers.url}"
        assert question.payload["url"].startswith(f"{servers.root}/authorize?response_type=code&client_id=registered")
        assert not model.requests
        result = await runner.resume(result.run_id, await visit_for(result))
        assert results(result) == ["read"]
        assert servers.asked == ["register", "authorize read", "authorization_code"]
        # The next run needs no leave any more, and the log can be gone through without anybody.
        assert await calls(source, ("read", {})) == ["read"]
        assert (await runner.replay(result.events)).output == "done"
        assert len(servers.asked) == 3


async def test_the_answer_may_come_to_another_process_and_no_secret_is_in_the_log(tmp_path: Path) -> None:
    async with guarded() as servers:

        def fresh() -> Runner[Any, str]:
            source = MCPToolset(servers.url, auth=leave(tokens=FileTokenStore(tmp_path / "tokens")))
            return caller(source, [call("read")])[0]

        first, second = fresh(), fresh()
        result = await first.run("hi")
        answers = await visit_for(result)
        result = await second.resume(second.load_log(result.events), answers)
        assert results(result) == ["read"]
        assert servers.asked == ["register", "authorize read", "authorization_code"]
        log = encode_log(result.events).decode()
        assert "token-" not in log
        assert "refresh-" not in log
        files = [*(tmp_path / "tokens").iterdir()]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert all("verifier" not in file.read_text() for file in files)


async def test_an_answer_to_a_page_that_nobody_remembers_leads_to_another_page() -> None:
    async with guarded() as servers:

        def fresh() -> Runner[Any, str]:
            return caller(MCPToolset(servers.url, auth=leave()), [call("read")])[0]

        first, second = fresh(), fresh()
        result = await first.run("hi")
        answers = await visit_for(result)
        # What was kept in memory is gone in the other process.
        result = await second.resume(second.load_log(result.events), answers)
        [question] = result.interrupts
        assert question.id not in answers
        assert results(await second.resume(result.run_id, await visit_for(result))) == ["read"]


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (False, "the user gave no leave to use it"),
        ({"state": "of this page", "error": "access_denied"}, "the user gave no leave: access_denied"),
        ({"state": "of this page", "code": "made up"}, "Token exchange failed"),
    ],
)
async def test_a_user_who_gives_no_leave_ends_the_run_and_may_think_again(answer: Any, because: str) -> None:
    async with guarded() as servers:
        runner, _ = caller(MCPToolset(servers.url, auth=leave()), [call("read")])
        result = await runner.run("hi", run_id="r")
        if answer is not False:
            state = result.interrupts[0].payload["url"].partition("&state=")[2].partition("&")[0]
            answer = {**answer, "state": state}
        with pytest.raises(ToolsUnavailableError, match=because):
            await runner.resume("r", answer)
        if answer is False:
            return
        result = await runner.resume("r")
        assert results(await runner.resume("r", await visit_for(result))) == ["read"]


async def test_a_token_that_has_ended_is_renewed_without_the_user_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded() as servers:

        def source() -> MCPToolset:
            return MCPToolset(servers.url, auth=leave(tokens=FileTokenStore(tmp_path), on_authorize=visited))

        assert await calls(source(), ("read", {})) == ["read"]
        assert servers.asked == ["register", "authorize read", "authorization_code"]
        servers.tokens.clear()
        monkeypatch.setattr("baton.mcp.oauth.time", lambda: time() + 7200)
        assert await calls(source(), ("read", {})) == ["read"]
        assert servers.asked[3:] == ["refresh_token"]


async def test_a_server_that_is_never_content_does_not_send_the_user_round_for_ever() -> None:
    async with guarded() as servers:
        servers.lifetime = 0
        with pytest.raises(ToolsUnavailableError, match="leave was given 3 times"):
            await MCPToolset(servers.url, auth=leave(on_authorize=visited)).__aenter__()


async def test_a_call_that_needs_more_leave_waits_for_it_and_is_made_once() -> None:
    async with guarded() as servers:
        runner, _ = caller(MCPToolset(servers.url, auth=leave()), [call("read"), call("write")])
        result = await runner.run("hi")
        result = await runner.resume(result.run_id, await visit_for(result))
        [question] = result.interrupts
        assert question.tool_call is not None
        assert question.tool_call.name == "write"
        result = await runner.resume(result.run_id, await visit_for(result))
        assert results(result) == ["read", "written"]
        assert sorted(servers.calls) == ["read", "write"]
        assert servers.asked[-2:] == ["authorize read write", "authorization_code"]


async def test_a_function_can_send_the_user_instead_also_while_nothing_runs() -> None:
    async with guarded() as servers:
        async with MCPToolset(servers.url, auth=leave(on_authorize=visited)) as source:
            assert servers.asked == ["register", "authorize read", "authorization_code"]
            assert await calls(source, ("write", {})) == ["written"]

        async def lost(url: str) -> str:
            return f"{BACK}?code=1&state=another"

        with pytest.raises(ToolsUnavailableError, match="what `visit` gave is no answer"):
            await MCPToolset(servers.url, auth=leave(on_authorize=lost)).__aenter__()


async def test_one_that_is_kept_open_without_leave_is_opened_by_the_first_run_that_gets_it() -> None:
    async with guarded() as servers, MCPToolset(servers.url, auth=leave()) as source:
        runner, _ = caller(source, [call("read")])
        result = await runner.run("hi")
        assert results(await runner.resume(result.run_id, await visit_for(result))) == ["read"]
        assert await calls(source, ("read", {})) == ["read"]


async def test_two_servers_ask_at_once_and_leave_given_elsewhere_counts() -> None:
    async with guarded() as one, guarded() as other:
        auth = leave()
        sources = [MCPToolset(one.url, auth=auth, prefix="one"), MCPToolset(other.url, auth=auth, prefix="other")]
        runner, _ = caller(sources, [call("one_read"), call("other_read")])
        result = await runner.run("hi")
        assert len(result.interrupts) == 2
        # Another run gets leave for the first of them meanwhile.
        elsewhere, _ = caller(sources[0], [call("one_read")])
        second = await elsewhere.run("hi")
        await elsewhere.resume(second.run_id, await visit_for(second))
        answers = await visit_for(result)
        first = next(asked.id for asked in result.interrupts if one.root in asked.payload["url"])
        assert results(await runner.resume(result.run_id, {**answers, first: True})) == ["read", "read"]


async def test_calls_with_a_token_go_side_by_side() -> None:
    async with guarded() as servers:
        source = MCPToolset(servers.url, auth=leave(on_authorize=visited))
        runner, _ = caller(source, [call("gather") for _ in range(5)])
        # Each waits on the server until all are there; it answers them only then.
        assert results(await runner.run("hi")) == ["together"] * 5


def test_what_is_no_way_to_show_who_asks_is_refused_and_secrets_are_not_shown() -> None:
    with pytest.raises(SetupError, match="takes a token, a function that gives headers"):
        MCPToolset("https://example.org/mcp", auth=42)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SetupError, match="headers and auth are for those"):
        MCPToolset("uvx mcp-server-time", auth="token")
    with pytest.raises(SetupError, match="either a client_secret or a private_key"):
        ClientCredentials(client_id="a", issuer="https://example.org")
    auth = ClientCredentials(client_id="a", client_secret="hidden", issuer="https://example.org")
    assert "hidden" not in repr(auth)
    assert "hidden" not in repr(leave(client_id="a", client_secret="hidden"))


async def test_many_who_wait_for_the_same_leave_are_shown_the_same_page() -> None:
    async with guarded() as servers:
        source = MCPToolset(servers.url, auth=leave())
        runners = [caller(source, [call("read")])[0] for _ in range(5)]
        waiting = await asyncio.gather(*[runner.run("hi") for runner in runners])
        assert len({result.interrupts[0].payload["url"] for result in waiting}) == 1
        assert servers.asked == ["register"]
