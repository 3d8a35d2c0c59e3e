"""AG-UI and threads with an unfinished run: messages that wait, steer and preempt, and open tasks."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.serve.agui.frontend import FrontendClient, kinds_of, serve_frontend, text_in
from tests.waiting import until

from batonkit import Agent, RunContext, Runner, handoff, tool
from batonkit.errors import SetupError
from batonkit.runs import BackgroundRunner
from batonkit.serve.agui import agui_app
from batonkit.stores import SQLiteStore
from batonkit.testing import ScriptedModel, ScriptedStream, call


class Desk:
    """A desk whose tool waits until it may go on, and its app."""

    def __init__(self, folder: Path, *steps: Any, **options: Any) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

        @tool
        async def look(ctx: RunContext) -> str:
            """Look."""
            self.entered.set()
            await self.opened.wait()
            ctx.values.set("seen", True)
            return "seen"

        @tool
        async def ask_me(ctx: RunContext) -> str:
            """Ask."""
            return await ctx.interrupt("well?")

        self.model = ScriptedModel([*steps], stream=True)
        agent = Agent("Desk", tools=[look, ask_me], model=self.model)
        self.runner: Runner[Any, Any] = Runner(agent, store=SQLiteStore(folder / "runs.db"))
        self.app = agui_app(BackgroundRunner(self.runner), **options)

    def read_by_user(self) -> list[Any]:
        """Return what the user had said by the last model call."""
        return [each.content for each in self.model.requests[-1].messages if type(each).__name__ == "UserMessage"]


Note = Callable[[dict[str, Any]], None]


def until_started(note: Note | None = None) -> tuple[asyncio.Event, Note]:
    """Return an event that is set when a stream has started, and the callback that sets it."""
    started = asyncio.Event()

    def read(event: dict[str, Any]) -> None:
        if event["type"] == "RUN_STARTED":
            started.set()
        if note is not None:
            note(event)

    return started, read


async def send_both(
    desk: Desk, frontend: FrontendClient, text: str, *, note: Note | None = None, **more: Any
) -> tuple[Any, Any]:
    """Send a message while the desk looks; return the events of both requests."""
    first = asyncio.create_task(frontend.run("one"))
    await desk.entered.wait()
    started, note = until_started(note)
    second = asyncio.create_task(frontend.run(text, on_event=note, **more))
    await started.wait()
    desk.opened.set()
    return await first, await second


async def test_a_message_for_a_busy_thread_is_refused_unless_it_may_wait(tmp_path: Path) -> None:
    desk = Desk(tmp_path, call("look"), "One.")
    async with serve_frontend(desk.app) as frontend:
        first = asyncio.create_task(frontend.run("one"))
        await desk.entered.wait()
        assert await frontend.refused("two") == (409, "thread_busy")
        assert await frontend.refused("two", forwardedProps={"whenBusy": "later"}) == (422, "invalid")
        desk.opened.set()
        await first


async def test_a_queued_message_is_streamed_when_its_run_starts(tmp_path: Path) -> None:
    gate = asyncio.Event()
    desk = Desk(tmp_path, call("look"), "The first answer.", ScriptedStream("The second ", gate, "answer."))

    def open_gate(event: dict[str, Any]) -> None:
        # Deltas arrive, not only the complete response: the run is driven here.
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            gate.set()

    async with serve_frontend(desk.app) as frontend:
        props = {"whenBusy": "queue"}
        first, second = await send_both(
            desk, frontend, "two", note=open_gate, forwardedProps=props, state={"color": "red"}
        )
    assert text_in(first) == "The first answer."
    assert text_in(second) == "The second answer."
    snapshots = [event["snapshot"] for event in second if event["type"] == "STATE_SNAPSHOT"]
    assert snapshots == [{"color": "red"}]
    assert desk.read_by_user() == ["one", "two"]


async def test_a_message_that_steers_is_shown_in_the_stream_of_the_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path, call("look"), "Loud and clear.", "Again.", when_busy="steer")
    async with serve_frontend(desk.app) as frontend:
        first, second = await send_both(desk, frontend, "louder")
        (shown,) = [event for event in first if event["type"] == "TEXT_MESSAGE_START" and event["role"] == "user"]
        assert text_in([event for event in first if event.get("messageId") == shown["messageId"]]) == "louder"
        assert text_in([event for event in first if event.get("messageId") != shown["messageId"]]) == "Loud and clear."
        assert kinds_of(second) == ["RUN_STARTED", "CUSTOM", "RUN_FINISHED"]
        assert (second[1]["name"], second[-1]["outcome"]) == ("baton.message_taken", {"type": "success"})
        assert desk.read_by_user() == ["one", "louder"]
        await frontend.run("three")
        assert desk.read_by_user() == ["one", "louder", "three"]


async def test_a_message_that_preempts_cancels_the_run_after_its_turn(tmp_path: Path) -> None:
    desk = Desk(tmp_path, call("look"), "Two.", when_busy="queue")
    async with serve_frontend(desk.app) as frontend:
        first, second = await send_both(desk, frontend, "two", forwardedProps={"whenBusy": "preempt"})
    assert first[-1]["outcome"] == {"type": "cancelled"}
    assert text_in(second) == "Two."


async def test_a_client_that_leaves_withdraws_its_message(tmp_path: Path) -> None:
    desk = Desk(tmp_path, call("look"), "One.", when_busy="queue")
    async with serve_frontend(desk.app) as frontend:
        first = asyncio.create_task(frontend.run("one"))
        await desk.entered.wait()
        started, note = until_started()
        second = asyncio.create_task(frontend.run("two", on_event=note))
        await started.wait()
        thread = desk.runner.thread("t1")
        assert len(await thread.waiting()) == 1
        second.cancel()
        await until(thread.waiting, lambda messages: not messages)
        desk.opened.set()
        assert text_in(await first) == "One."
    assert len(await thread.runs()) == 1


async def test_a_message_waits_for_a_suspended_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path, call("ask_me"), "One.", "Two.", when_busy="queue")
    async with serve_frontend(desk.app) as frontend:
        asked = await frontend.run("one")
        (interrupt,) = asked[-1]["outcome"]["interrupts"]
        started, note = until_started()
        waiting = asyncio.create_task(frontend.run("two", on_event=note))
        await started.wait()
        messages, frontend.messages = frontend.messages, frontend.messages[:-1]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}
        assert text_in(await frontend.run(resume=[answer])) == "One."
        frontend.messages = messages
        assert text_in(await waiting) == "Two."


async def test_open_tasks_are_sent_at_the_beginning_of_a_stream(tmp_path: Path) -> None:
    booking = Agent("Booking", description="Books.")
    desk = Agent("Desk", handoffs=[handoff(booking, return_to="caller", until="finished")])
    model = ScriptedModel(
        {"Desk": [call("transfer_to_booking"), "Booked."], "Booking": ["Which day?", call("finish_task", result="Mon")]}
    )
    app = agui_app(Runner(desk, model=model, store="memory:"))
    async with serve_frontend(app) as frontend:
        first = await frontend.run("a table")
        second = await frontend.run("Monday")
    assert [event["name"] for event in first if event["type"] == "CUSTOM"] == ["baton.task_opened"]
    shown = [(event["name"], event["value"]) for event in second if event["type"] == "CUSTOM"]
    assert [name for name, _ in shown] == ["baton.open_tasks", "baton.task_ended"]
    assert [(task["agent"], task["caller"]) for task in shown[0][1]] == [("Booking", "Desk")]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SetupError, match="when_busy"):
        agui_app(Runner(Agent("A"), store="memory:"), when_busy="later")  # pyright: ignore[reportArgumentType]
