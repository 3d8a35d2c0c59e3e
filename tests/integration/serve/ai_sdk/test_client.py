"""The npm package `ai` talks with our server: what a page with `useChat` shows and does."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, tool
from batonkit.errors import ModelError
from batonkit.models import ModelRequest
from batonkit.serve import ai_sdk_app, serve_in_background
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedStream, call

CLIENT = Path(__file__).with_name("client.mjs")
PACKAGES = Path(__file__).parents[4] / ".cache" / "ai-sdk"
Steps = list[dict[str, Any]]


@pytest.fixture(scope="module")
def client() -> Path:
    """The program beside the package `ai`, which npm installs the first time."""
    npm = shutil.which("npm")
    assert npm is not None, "these tests need node and npm"
    PACKAGES.mkdir(parents=True, exist_ok=True)
    if not (PACKAGES / "node_modules" / "ai").is_dir():
        command = [
            npm,
            "install",
            "--silent",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(PACKAGES),
            "ai@7",
        ]
        subprocess.run(command, check=True, cwd=PACKAGES)
    return Path(shutil.copy(CLIENT, PACKAGES))


async def _play(
    client: Path, app: Any, steps: Steps, *, token: str = "", on_seen: Callable[[], None] | None = None
) -> list[dict[str, Any]]:
    """Serve an app, and return what the page shows after each step."""
    async with serve_in_background(app, drain=0) as url:
        return await _talk(client, url, steps, token=token, on_seen=on_seen)


async def _talk(
    client: Path, url: str, steps: Steps, *, token: str = "", on_seen: Callable[[], None] | None = None
) -> list[dict[str, Any]]:
    argument = json.dumps({"api": url, "id": "c/1", "token": token, "steps": steps})
    node = await asyncio.create_subprocess_exec(
        "node", str(client), argument, stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )
    assert node.stdout is not None
    shown: list[dict[str, Any]] = []
    async for line in node.stdout:
        printed = json.loads(line)
        if "saw" not in printed:
            shown.append(printed)
        elif on_seen is not None:
            on_seen()
    assert await node.wait() == 0
    return shown


def _parts(shown: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the parts of the last message: their type, and what is in them."""
    parts: list[dict[str, Any]] = shown["messages"][-1]["parts"]
    return [(part["type"], _content(part)) for part in parts if part["type"] != "step-start"]


def _content(part: dict[str, Any]) -> Any:
    if "text" in part:
        return (part["providerMetadata"]["baton"]["agent"], part["text"])
    return part["data"] if "data" in part else (part["state"], part.get("output"))


@tool
async def look_up(order: str) -> str:
    """Look up an order."""
    return f"{order} is on its way"


@tool(needs_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} is paid back"


@tool
async def ask_user(ctx: RunContext) -> str:
    """Ask the user."""
    return f"{await ctx.interrupt({'message': 'how many?'}, schema={'type': 'integer'})} of them"


def _app(*script: Any, store: Any = "memory:", handoffs: Any = (), **options: Any) -> Any:
    desk = Agent("Desk", tools=[look_up, refund, ask_user], handoffs=handoffs, model=ScriptedModel([*script]))
    return ai_sdk_app(Runner(desk, store=store), **options)


async def test_text_and_tools_are_shown_and_the_chat_continues(client: Path) -> None:
    app = _app(call("look_up", order="A-1"), "It comes soon.", "You are welcome.")
    first, second = await _play(client, app, [{"send": "Where is A-1?"}, {"send": "Thanks"}])
    assert _parts(first) == [
        ("tool-look_up", ("output-available", "A-1 is on its way")),
        ("text", ("Desk", "It comes soon.")),
    ]
    assert first["messages"][-1]["metadata"]["usage"]["totalTokens"] == 0
    assert _parts(second) == [("text", ("Desk", "You are welcome."))]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user", "assistant"]
    assert second["status"] == "ready"


@pytest.mark.parametrize(
    ("approved", "state"), [(True, ("output-available", "A-1 is paid back")), (False, ("output-denied", None))]
)
async def test_an_approval_is_requested_and_the_answer_sent(client: Path, approved: bool, state: Any) -> None:
    steps: Steps = [{"send": "Pay me."}, {"decide": {"approved": approved, "reason": "as agreed"}}]
    asked, decided = await _play(client, _app(call("refund", order="A-1"), "So be it."), steps)
    assert _parts(asked) == [("tool-refund", ("approval-requested", None))]
    assert _parts(decided) == [("tool-refund", state), ("text", ("Desk", "So be it."))]
    assert len(decided["messages"]) == 2
    assert (decided["status"], decided.get("error")) == ("ready", None)


async def test_a_question_is_answered_by_its_id(client: Path) -> None:
    asked, answered = await _play(client, _app(call("ask_user"), "Fine."), [{"send": "Buy."}, {"answer": 3}])
    assert _parts(asked)[1][1]["text"] == "Desk asks: how many?"
    assert _parts(answered)[0] == ("tool-ask_user", ("output-available", "3 of them"))
    assert _parts(answered)[1][1]["answered"] is True
    assert _parts(answered)[2] == ("text", ("Desk", "Fine."))


async def test_a_handoff_sticks_over_turns(client: Path) -> None:
    refunds = Agent("Refunds", description="Pays back.", model=ScriptedModel(["I pay.", "Still me."]))
    app = _app(call("transfer_to_refunds"), handoffs=[refunds])
    first, second = await _play(client, app, [{"send": "Pay me."}, {"send": "Who are you?"}])
    assert _parts(first) == [
        ("data-handoff", {"from": "Desk", "to": "Refunds"}),
        ("text", ("Refunds", "I pay.")),
    ]
    assert _parts(second) == [("text", ("Refunds", "Still me."))]


async def test_stopping_cancels_the_run_and_the_next_message_is_answered(client: Path) -> None:
    store = MemoryStore()
    app = _app(ScriptedStream("so", asyncio.Event(), "on"), "Here I am.", store=store)
    stopped, answered = await _play(client, app, [{"send": "Where?", "leave": "so"}, {"send": "Hello?"}])
    assert (_parts(stopped), stopped["status"], stopped["isAbort"]) == ([("text", ("Desk", "so"))], "ready", True)
    assert _parts(answered) == [("text", ("Desk", "Here I am."))]
    records = (await store.list()).records
    assert [record.status for record in records] == ["completed", "cancelled"]


async def test_a_page_that_was_loaded_again_resumes_the_stream(client: Path) -> None:
    gate = asyncio.Event()
    script = [call("look_up", order="A-1"), ScriptedStream("so", gate, "on")]
    steps: Steps = [{"resume": "nothing"}, {"send": "Where?", "leave": "so"}, {"resume": "so"}, {"resume": "so"}]
    app = _app(*script, on_disconnect="continue")
    before, _, resumed, after = await _play(client, app, steps, on_seen=gate.set)
    assert (before["messages"], before["status"]) == ([], "ready")
    assert _parts(resumed) == [
        ("tool-look_up", ("output-available", "A-1 is on its way")),
        ("text", ("Desk", "soon")),
    ]
    assert (after["messages"], after["status"]) == ([], "ready"), "nothing is running"


async def test_regenerating_continues_a_failed_run(client: Path) -> None:
    def fail(request: ModelRequest) -> Any:
        raise ModelError("no credit")

    app = _app(call("look_up", order="A-1"), fail, "soon")
    failed, again = await _play(client, app, [{"send": "Where?"}, {"regenerate": True}])
    assert (failed["status"], failed["error"]) == ("error", "the run failed")
    assert [part[0] for part in _parts(again)] == ["tool-look_up", "text"]
    assert again["status"] == "ready"


async def test_a_wrong_key_is_an_error_of_the_page(client: Path) -> None:
    (shown,) = await _play(client, _app("hi", auth={"a": "ada"}), [{"send": "Hello?"}], token="wrong")
    assert shown["status"] == "error"
    assert json.loads(shown["error"])["error"]["code"] == "unauthorized"


async def test_the_chat_of_another_owner_is_as_if_it_did_not_exist(client: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream("so", gate, "on"), "Hello, Bob."])
    store = MemoryStore()
    app = ai_sdk_app(
        Runner(Agent("Desk", model=model), store=store), auth={"a": "ada", "b": "bob"}, on_disconnect="continue"
    )
    async with serve_in_background(app, drain=0) as url:
        await _talk(client, url, [{"send": "Where?", "leave": "so"}], token="a")
        resumed, answered = await _talk(client, url, [{"resume": "so"}, {"send": "Hi"}], token="b")
        gate.set()

        async def all_completed() -> bool:
            return {record.status for record in (await store.list()).records} == {"completed"}

        await until(all_completed)
    assert resumed["messages"] == []
    assert _parts(answered) == [("text", ("Desk", "Hello, Bob."))]
    assert [message.content for message in model.requests[-1].messages] == ["Hi"]
