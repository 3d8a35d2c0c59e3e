"""Studio's app: sign-in, headers, refused writes, read-only mode and exports. The page itself: `make test-browser`."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from batonkit import Agent, Runner
from batonkit.errors import SetupError
from batonkit.serve import serve_in_background
from batonkit.serve.api.openapi import openapi_document
from batonkit.serve.studio import StudioApp, studio_app
from batonkit.serve.studio.app import CONTENT_SECURITY_POLICY
from batonkit.serve.studio.page_files import ASSETS
from batonkit.testing import ScriptedModel

STRICT = "SameSite=Strict"
BEARER = {"Authorization": "Bearer t"}
_PUBLIC = ("/health", "/openapi.json")
API_ROUTES = [
    (method, path)
    for path, by_method in openapi_document(inspection=True)["paths"].items()
    for method in by_method
    if path not in _PUBLIC and method != "parameters"
]


def _runner(store: Any = "memory:") -> Runner[Any, Any]:
    said = "Hello </script><script>alert(1)</script> ada@example.com"
    return Runner(Agent("Desk", instructions="Be kind.", model=ScriptedModel([said], cycle=True)), store=store)


@asynccontextmanager
async def _serve(app: StudioApp) -> AsyncGenerator[tuple[aiohttp.ClientSession, str]]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with serve_in_background(app, drain=0) as url, aiohttp.ClientSession(cookie_jar=jar) as session:
        yield session, url


async def _sign_in(session: aiohttp.ClientSession, app: StudioApp, url: str) -> None:
    async with session.get(app.url(url)) as page:
        assert page.status == 200


async def test_the_token_of_the_url_works_once_and_sets_a_strict_cookie() -> None:
    app = studio_app(_runner())
    async with _serve(app) as (session, url):
        async with session.get(f"{url}/") as page:
            assert page.status == 401
            assert "baton studio" in await page.text()
        signed = app.url(url, "r1@3")
        assert signed.endswith("#r1@3")
        async with session.get(signed, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"]
            port = url.rpartition(":")[2]
            assert cookie.startswith(f"baton_studio_{port}=")
            assert "HttpOnly" in cookie
            assert STRICT in cookie
        async with session.get(f"{url}/") as page:
            assert (page.status, page.content_type) == (200, "text/html")
        session.cookie_jar.clear()
        async with session.get(signed) as page:
            assert page.status == 403
        async with session.get(f"{url}/?token=guess") as page:
            assert page.status == 403


async def test_every_response_has_the_security_headers() -> None:
    app = studio_app(_runner())
    async with _serve(app) as (session, url):
        for path in ("/", "/studio.js", "/api/runs", "/nothing"):
            async with session.get(url + path) as answer:
                assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_api_needs_the_cookie_and_writes_need_the_same_origin() -> None:
    app = studio_app(_runner())
    async with _serve(app) as (session, url):
        for path in ("/api/runs", "/api/team", "/config.json", "/export/r.html"):
            async with session.get(url + path) as answer:
                assert answer.status == 401
        await _sign_in(session, app, url)
        async with session.get(f"{url}/api/team") as answer:
            assert (await answer.json())["root"] == "Desk"
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            async with session.post(f"{url}/api/runs", json={"input": "hi"}, headers=headers) as answer:
                assert answer.status == 403
        async with session.post(f"{url}/api/runs", json={"input": "hi"}, headers={"Origin": url}) as answer:
            assert answer.status == 201


async def test_a_configured_token_signs_in_again_and_again() -> None:
    app = studio_app(_runner(), auth="s3cret")
    async with _serve(app) as (session, url):
        for _ in range(2):
            session.cookie_jar.clear()
            async with session.get(f"{url}/?token=s3cret") as page:
                assert page.status == 200
        session.cookie_jar.clear()
        async with session.get(f"{url}/api/runs", headers={"Authorization": "Bearer s3cret"}) as answer:
            assert answer.status == 200


async def test_a_token_of_one_owner_does_not_open_the_page() -> None:
    # Studio shows the runs of all owners, and a fork may act with any arguments.
    runner = _runner()
    await runner.run("hi", run_id="ada:r", owner="ada")
    app = studio_app(runner, auth={"t": "ada"})
    async with _serve(app) as (session, url):
        for method, path in API_ROUTES:
            route = path.format(id="r", key="1/m1", other="r")
            async with session.request(method, f"{url}/api{route}", json={}, headers=BEARER) as answer:
                assert answer.status == 401, (method, path)
                assert "Be kind." not in await answer.text()
        async with session.get(f"{url}/?token=t") as page:
            assert page.status == 403
        for path in ("/", "/config.json", "/export/r.html"):
            async with session.get(url + path, headers=BEARER) as page:
                assert page.status == 401
    assert [record.run_id for record in (await runner.runs.list()).records] == ["ada:r"]


async def test_without_a_team_runs_are_only_shown(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with _runner(store) as runner:
        await runner.run("hi", run_id="r")
    app = studio_app(Runner(Agent("viewer"), store=store), can_write=False)
    async with _serve(app) as (session, url):
        await _sign_in(session, app, url)
        async with session.get(f"{url}/config.json") as answer:
            assert (await answer.json())["can_write"] is False
        async with session.get(f"{url}/api/runs/r/reads/1/m1") as answer:
            assert (await answer.json())["instructions"] == "Be kind."
        for path in ("runs", "runs/r/fork", "runs/r/replay", "runs/r/resume"):
            async with session.post(f"{url}/api/{path}", json={"input": "hi"}) as answer:
                assert answer.status == 403
        async with session.delete(f"{url}/api/runs/r") as answer:
            assert answer.status == 403


async def test_runs_of_other_workers_are_not_taken_over(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with _runner(store) as runner:
        await runner.submit("hi", run_id="r")
    app = studio_app(Runner(Agent("viewer"), store=store), can_write=False)
    async with _serve(app) as (session, url):
        await _sign_in(session, app, url)
        async with session.get(f"{url}/api/runs/r") as answer:
            assert (await answer.json())["status"] == "running"
        async with session.get(f"{url}/api/runs/r/log") as answer:
            assert len((await answer.json())["events"]) == 1


@pytest.mark.parametrize("redact", [False, True])
async def test_an_export_is_one_page_without_requests(redact: bool) -> None:
    runner = _runner()
    await runner.run("mail ada@example.com", run_id="r")
    app = studio_app(runner)
    async with _serve(app) as (session, url):
        await _sign_in(session, app, url)
        async with session.get(f"{url}/export/r.html{'?redact' if redact else ''}") as answer:
            page = await answer.text()
            assert answer.headers["Content-Disposition"] == 'attachment; filename="r.html"'
        assert page.count("<script") == 2
        assert "alert(1)</script>" not in page
        assert ("ada@example.com" in page) is not redact
        assert ("[email]" in page) is redact
        assert "default-src 'none'; script-src 'sha256-" in page
        assert "data:font/woff2;base64," in page
        assert "./inter.woff2" not in page
        async with session.get(f"{url}/export/none.html") as answer:
            assert answer.status == 404


async def test_a_redacted_export_has_no_address_in_fields_of_the_users_data() -> None:
    runner = _runner()
    customer = {"id": "ada@example.com", "key": "ada@example.com", "type": "ada@example.com"}
    await runner.run("hi", run_id="r", values={"customer": customer})
    app = studio_app(runner)
    async with _serve(app) as (session, url):
        await _sign_in(session, app, url)
        async with session.get(f"{url}/export/r.html?redact") as answer:
            page = await answer.text()
    assert "ada@example.com" not in page
    assert '"customer":{"id":"[email]","key":"[email]","type":"[email]"}' in page


def test_the_files_of_the_page_are_small_and_load_nothing_else() -> None:
    folder = files("batonkit.serve.studio").joinpath("assets")
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if "license" not in file.name}
    assert {*contents} == {"index.html", *ASSETS}
    code = [content for name, content in contents.items() if not name.endswith(".woff2")]
    assert sum(len(gzip.compress(content, 9, mtime=0)) for content in code) <= 80_000
    assert sum(map(len, contents.values())) <= 400_000
    for name in ("index.html", "studio.css"):
        assert b"http" not in contents[name]


def test_a_runner_without_a_store_is_refused() -> None:
    with pytest.raises(SetupError, match="store"):
        studio_app(Runner(Agent("Desk")))
