"""The web app of a project that `baton init` wrote answers only callers with the token of its `.env`."""

import importlib
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from batonkit.cli.env_file import parse_env
from batonkit.testing import ScriptedModel

Invoke = Callable[..., Any]
NAME = "desk_with_token"


@pytest.fixture
def project(baton: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a new project whose package can be imported."""
    assert baton("init", NAME).exit_code == 0
    monkeypatch.setattr(sys, "path", [str(tmp_path / NAME), *sys.path])
    monkeypatch.delenv("API_TOKEN", raising=False)
    yield tmp_path / NAME
    for module in [module for module in sys.modules if module.partition(".")[0] == NAME]:
        del sys.modules[module]


def create_app() -> Any:
    model = ScriptedModel({"Triage": ["We open at nine."]})
    return importlib.import_module(f"{NAME}.app").create_app(model=model, store="memory:")


@contextmanager
def client_of(app: Any) -> Generator[TestClient]:
    with closing(TestClient(app)) as client, client:
        yield client


def test_the_token_of_the_env_file_admits_a_caller(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = parse_env((project / ".env").read_text(encoding="utf-8"))["API_TOKEN"]
    monkeypatch.setenv("API_TOKEN", token)
    with client_of(create_app()) as client:
        send: dict[str, Any] = {"url": "/threads/u42/messages", "json": {"text": "When do you open?"}}
        for wrong in ({}, {"Authorization": f"Bearer {token}x"}, {"Authorization": f"Basic {token}"}):
            refused = client.post(**send, headers=wrong)
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        answer = client.post(**send, headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["answer"]) == (200, "We open at nine.")


def test_only_the_health_check_and_the_schema_need_no_token(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "secret")
    with client_of(create_app()) as client:
        paths = client.get("/openapi.json").json()["paths"]
    open_paths = [path for path, methods in paths.items() if not all("security" in each for each in methods.values())]
    assert open_paths == ["/health"]


@pytest.mark.parametrize("token", [None, "", " "])
def test_the_app_does_not_start_without_a_token(
    project: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    if token is not None:
        monkeypatch.setenv("API_TOKEN", token)
    with pytest.raises(SystemExit, match=r"^API_TOKEN is not set, so anyone could use the app; .* \.env\.example"):
        create_app()


def test_each_project_has_a_token_of_its_own_that_is_not_committed(baton: Invoke, tmp_path: Path) -> None:
    tokens: set[str] = set()
    for name in ("first", "second"):
        baton("init", name)
        folder = tmp_path / name
        tokens.add(parse_env((folder / ".env").read_text(encoding="utf-8"))["API_TOKEN"])
        assert (folder / ".env").stat().st_mode & 0o777 == 0o600
        for ignoring in (".gitignore", ".dockerignore"):
            assert ".env" in (folder / ignoring).read_text(encoding="utf-8").splitlines()
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".env"]
        assert not any(token in path.read_text(encoding="utf-8") for path in files for token in tokens)
    assert [len(token) >= 43 for token in tokens] == [True, True]


def test_the_files_say_how_to_make_and_send_the_token(project: Path) -> None:
    example = (project / ".env.example").read_text(encoding="utf-8")
    assert parse_env(example)["API_TOKEN"] == ""
    assert "secrets.token_urlsafe" in example
    assert 'authorization: Bearer $API_TOKEN"' in (project / "README.md").read_text(encoding="utf-8")
