"""A remote service as an agent: ours, and one made with the plain SDK."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port
from tests.serving.a2a.plain import plain_service
from tests.serving.a2a.stage import served

from baton import Agent, RunContext, Runner, agent, tool
from baton.a2a import RemoteAgent
from baton.agents import AgentContext
from baton.errors import RemoteError, RemoteRejectedError, RemoteUnavailableError, SetupError
from baton.events import TextDelta
from baton.messages import text_of
from baton.serving.a2a import a2a_app
from baton.testing import ScriptedModel, ScriptedStream, call, transfer_to
from baton.workflows import LoopAgent


@tool(needs_approval=True)
async def send_alert(city: str) -> str:
    """Send a storm warning."""
    return f"sent to {city}"


def _router(remote: RemoteAgent, store: Any = None) -> Runner:
    router = Agent("Router", description="Routes.", sub_agents=[remote])
    return Runner(router, model=ScriptedModel([transfer_to(remote.name)], cycle=True), store=store)


async def test_a_transfer_to_a_remote_agent_streams_its_words() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream("It is ", gate, "sunny.")])
    weather = Agent("Weather", description="Knows the weather.", model=model)
    async with served(a2a_app(weather)) as url:
        remote = await RemoteAgent.discover(url)
        assert (remote.name, remote.description) == ("Weather", "Knows the weather.")
        heard: list[str] = []
        async with _router(remote).stream("How is Rome?") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    heard.append(event.text)
                    gate.set()
        assert (run.result.output, run.result.agent) == ("It is sunny.", "Weather")
        assert heard == ["It is ", "sunny."]
        (request,) = model.requests
        assert "How is Rome?" in str(request.messages)
        await remote.close()


async def test_a_question_there_is_a_question_here_also_after_both_have_been_restarted(tmp_path: Path) -> None:
    port, model = free_port(), ScriptedModel([call("send_alert", city="Rome"), "Sent."])
    remote = RemoteAgent(f"http://127.0.0.1:{port}", name="Weather", description="Warns.")

    def there() -> Any:
        alerts = Agent("Weather", description="Warns.", tools=[send_alert], model=model)
        return a2a_app(alerts, store=tmp_path / "there.db")

    async with served(there(), port):
        result = await _router(remote, tmp_path / "here.db").run("Warn Rome.")
        (question,) = result.interrupts
        assert question.payload["kind"] == "a2a"
        assert question.payload["payload"]["kind"] == "approval"
        assert question.payload["taskId"]
        await remote.close()

    answering = asyncio.create_task(_router(remote, tmp_path / "here.db").resume(result.run_id, {question.id: True}))
    await asyncio.sleep(0.3)  # The service is away when the answer is sent.
    async with served(there(), port):
        done = await answering
        assert (done.status, done.output) == ("completed", "Sent.")
        await remote.close()
    model.assert_done()


async def test_a_remote_agent_as_a_tool_asks_through_its_caller() -> None:
    model = ScriptedModel([call("send_alert", city="Oslo"), "Sent."])
    async with served(a2a_app(Agent("Alerts", description="Warns.", tools=[send_alert], model=model))) as url:
        remote = RemoteAgent(url, name="Alerts", description="Warns.")
        local = ScriptedModel([call("alerts", request="warn Oslo"), "Done."])
        runner = Runner(Agent("Desk", tools=[remote.as_tool("alerts")], model=local))
        result = await runner.run("Storm!")
        (question,) = result.interrupts
        assert question.agent == "Alerts"
        done = await runner.resume(result.run_id, {question.id: {"approved": False, "reason": "no storm"}})
        assert done.output == "Done."
        assert "no storm" in str(model.requests[-1].messages)
        await remote.close()


async def test_several_questions_are_answered_one_after_the_other() -> None:
    model = ScriptedModel([[call("send_alert", city="Oslo"), call("send_alert", city="Rome")], "Both."])
    async with served(a2a_app(Agent("Alerts", tools=[send_alert], model=model))) as url:
        remote = RemoteAgent(url, name="Alerts", description="Warns.")
        runner = Runner(remote)
        result = await runner.run("Storm!")
        result = await runner.resume(result.run_id, True)
        assert result.status == "suspended"
        result = await runner.resume(result.run_id, True)
        assert result.output == "Both."
        await remote.close()


async def test_a_cancel_here_is_a_cancel_there() -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    @agent("Slow", description="Takes its time.")
    async def slow(ctx: AgentContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx.run_id)

    async with served(a2a_app(slow)) as url:
        remote = RemoteAgent(url, name="Slow", description="Takes its time.")
        async with Runner(remote).stream("go") as run:
            await begun.wait()
            await run.cancel()
        assert len(ended) == 1
        await remote.close()


async def test_a_conversation_goes_on_in_the_same_context() -> None:
    model = ScriptedModel(["one", "two"])
    async with served(a2a_app(Agent("Echo", model=model))) as url:
        remote = RemoteAgent(url, name="Echo", description="Echoes.")

        @agent("Then", description="Asks again.")
        async def then(ctx: AgentContext) -> None:
            await ctx.say("and again?")

        result = await Runner(LoopAgent("Twice", sub_agents=[remote, then], max_iterations=2)).run("hello")
        assert result.status == "completed"
        first, second = model.requests
        assert [text_of(each.content) for each in first.messages] == ["hello"]
        assert [text_of(each.content) for each in second.messages] == [
            "hello",
            "one",
            "For context: [Then] said: and again?.",
        ], "it remembers what was said, and is told only what is new"
        await remote.close()


@pytest.mark.parametrize("streams", [True, False])
async def test_a_service_of_the_plain_sdk(streams: bool) -> None:
    port = free_port()
    async with served(plain_service(port, streams=streams), port) as url:
        remote = RemoteAgent(url, name="Plain", description="Plain.")
        runner = Runner(remote)
        assert (await runner.run("rain")).output == "it is rain"
        assert (await runner.run("just say it")).output == "said"
        asked = await runner.run("ask")
        assert [each.payload["question"] for each in asked.interrupts] == ["Which city?"]
        assert (await runner.resume(asked.run_id, "Rome")).output == "it is Rome"
        with pytest.raises(RemoteError, match="failed: no") as failed:
            await runner.run("fail")
        assert failed.value.state == "failed"
        with pytest.raises(RemoteRejectedError, match="not mine"):
            await runner.run("refuse")
        await remote.close()


async def test_a_service_that_is_away_is_an_error_that_says_so() -> None:
    remote = RemoteAgent(f"http://127.0.0.1:{free_port()}", name="Gone", description="Gone.", unavailable_timeout=0.3)
    with pytest.raises(RemoteUnavailableError, match="`Gone`"):
        await Runner(remote).run("hello?")
    await remote.close()
    with pytest.raises(SetupError, match="needs the URL of a service"):
        RemoteAgent("weather")


async def test_a_connection_that_is_lost_is_made_anew_and_nothing_is_told_twice(tmp_path: Path) -> None:
    port, gate, is_looking = free_port(), asyncio.Event(), asyncio.Event()

    @tool
    async def look(ctx: RunContext) -> str:
        """Look out of the window."""
        is_looking.set()
        await gate.wait()
        return "sun"

    def there() -> Any:
        model = ScriptedModel([call("look"), "Sunny."] if not (tmp_path / "there.db").exists() else ["Sunny."])
        return a2a_app(Agent("Weather", tools=[look], model=model), store=tmp_path / "there.db")

    remote = RemoteAgent(f"http://127.0.0.1:{port}", name="Weather", description="Weather.")
    async with served(there(), port):
        running = asyncio.create_task(Runner(remote).run("How is it?"))
        await is_looking.wait()
    gate.set()
    async with served(there(), port):
        result = await running
        assert result.output == "Sunny."
        await remote.close()
