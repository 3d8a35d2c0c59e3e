"""Custom agents: subclasses of `BaseAgent` and their context."""

import pytest

from batonkit import Agent, AgentContext, BaseAgent, Runner, SetupError, Transfer
from batonkit.errors import TaskDeclinedError
from batonkit.log import Action, AgentResponded, TextDelta
from batonkit.messages import Image, Text, UserMessage
from batonkit.runs import RunStream
from batonkit.testing import ScriptedModel, transcript, transfer_to


class Greeter(BaseAgent):
    """A custom agent: a class with `run`."""

    name = "Greeter"
    description = "greets and transfers"
    handoffs = ("Chat",)

    async def run(self, ctx: AgentContext) -> Action | None:
        name = await ctx.step("lookup", lambda: "Ada")
        await ctx.say(f"hello {name}")
        return Transfer("Chat")


async def test_a_custom_agent_runs_steps_sends_messages_and_transfers() -> None:
    chat = Agent("Chat", model=ScriptedModel(["how are you?"]))
    result = await Runner(Greeter(), extra_agents=[chat]).run("hi")
    assert result.output == "how are you?"
    assert transcript(result.events) == [
        'run of Greeter started with "hi"',
        "Greeter started",
        'Greeter: step lookup -> "Ada"',
        'Greeter: said "hello Ada"',
        "Greeter → Chat",
        "Greeter finished",
        "Chat started",
        'Chat: said "how are you?"',
        "Chat finished",
        "run completed",
    ]


def test_options_are_class_attributes_or_constructor_arguments() -> None:
    greeter = Greeter("Other", description="different", handoffs=["Boss"])
    assert (greeter.name, greeter.description) == ("Other", "different")
    assert [edge.target for edge in greeter._edges()] == ["Boss"]
    assert [edge.target for edge in Greeter()._edges()] == ["Chat"]
    assert (Greeter().name, Greeter().description) == ("Greeter", "greets and transfers")
    assert repr(greeter) == "Greeter('Other')"


def test_a_custom_agent_must_define_run() -> None:
    class WithoutRun(BaseAgent):
        name = "WithoutRun"

    with pytest.raises(TypeError, match="abstract"):
        WithoutRun()  # pyright: ignore[reportAbstractUsage]


def test_a_custom_agent_needs_a_name() -> None:
    class Nameless(BaseAgent):
        async def run(self, ctx: AgentContext) -> Action | None: ...

    with pytest.raises(SetupError, match="Nameless needs a name that is a non-empty string"):
        Nameless()


async def test_a_message_can_contain_media() -> None:
    # Media are kept.
    picture = Image(url="https://example.org/cat.png")

    class Painter(BaseAgent):
        name = "Painter"
        handoffs = ("Chat",)

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say((Text("look"), picture))
            return Transfer("Chat")

    model = ScriptedModel(["nice"])
    await Runner(Painter(), extra_agents=[Agent("Chat", model=model)]).run("hi")
    assert list(model.requests[0].messages) == [
        UserMessage("hi"),
        UserMessage((Text("For context: [Painter] said: look."), picture)),
    ]


async def test_messages_include_those_sent_in_the_same_activation() -> None:
    class Reader(BaseAgent):
        name = "Reader"

        async def run(self, ctx: AgentContext) -> Action | None:
            before = ctx.messages()
            await ctx.say("one")
            await ctx.say("two")
            ctx.output = (len(before), len(ctx.messages()))
            return None

    assert (await Runner(Reader()).run("hi")).output == (1, 3)


async def test_the_last_message_is_the_output() -> None:
    class Talker(BaseAgent):
        name = "Talker"

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("one")
            await ctx.say("two")
            return None

    result = await Runner(Talker()).run("hi")
    assert result.output == "two"
    assert [event.text for event in result.events if isinstance(event, AgentResponded)] == ["one", "two"]


async def test_the_output_of_an_agent_without_messages_is_none() -> None:
    class Silent(BaseAgent):
        name = "Silent"

        async def run(self, ctx: AgentContext) -> Action | None:
            return None

    result = await Runner(Silent()).run("hi")
    assert (result.status, result.output) == ("completed", None)


async def test_each_message_and_interrupt_has_its_own_stable_key() -> None:
    # Resuming old logs depends on these keys, so they must not change.
    class Talker(BaseAgent):
        name = "Talker"

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("one")
            await ctx.say("two")
            await ctx.interrupt("a?")
            await ctx.interrupt("b?")
            return None

    runner = Runner(Talker())
    result = await runner.run("hi")
    for _ in range(2):
        result = await runner.resume(result.run_id, "yes")
    keys = [event.key for event in result.events if event.agent]
    assert keys == [
        "1/start",
        "1/say1",
        "1/say2",
        "1/ask1",
        "1/ask1!",
        "1/ask2",
        "1/ask2!",
        "1/end",
    ]


async def test_a_message_of_a_custom_agent_is_an_answer_for_history_answers() -> None:
    class Talker(BaseAgent):
        name = "Talker"
        handoffs = ("Chat",)

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("my answer")
            return Transfer("Chat")

    model = ScriptedModel(["ok"])
    await Runner(Talker(), extra_agents=[Agent("Chat", model=model, history="answers")]).run("hi")
    assert list(model.requests[0].messages) == [
        UserMessage("hi"),
        UserMessage("For context: [Talker] said: my answer."),
    ]


async def test_a_custom_agent_can_decline_a_transfer() -> None:
    class Declining(BaseAgent):
        name = "Declining"
        description = "may decline"

        async def run(self, ctx: AgentContext) -> Action | None:
            await ctx.say("hello")
            return None

    model = ScriptedModel([transfer_to("Declining"), "I stay"])
    declining = Declining(accepts=lambda ctx, payload: "not today")
    assert (await Runner(Agent("A", model=model, sub_agents=[declining])).run("hi")).output == "I stay"
    accepting_model = ScriptedModel([transfer_to("Declining")])
    assert (await Runner(Agent("A", model=accepting_model, sub_agents=[Declining()])).run("hi")).output == "hello"


class Writer(BaseAgent):
    """Streams the text of its messages, with an interrupt in between."""

    name = "Writer"

    async def run(self, ctx: AgentContext) -> None:
        await ctx.stream_text("one ")
        await ctx.stream_text("two")
        await ctx.say("one two")
        await ctx.interrupt("more?")
        await ctx.stream_text("three")
        await ctx.say("three")


async def test_streamed_text_is_delivered_immediately_and_not_again_after_a_resume() -> None:
    runner = Runner(Writer(), store="memory:")

    async def texts(stream: RunStream[str]) -> list[str]:
        async with stream as run:
            return [event.text async for event in run if isinstance(event, TextDelta)]

    assert await texts(runner.stream("hi", run_id="r")) == ["one ", "two"]
    assert await texts(runner.stream_resume("r", "yes")) == ["three"]
    assert [event.message.content for event in await runner.runs.events("r") if isinstance(event, AgentResponded)] == [
        "one two",
        "three",
    ]


async def test_a_declined_task_ends_the_run_with_its_reason() -> None:
    class Specialist(BaseAgent):
        name = "Specialist"

        async def run(self, ctx: AgentContext) -> None:
            raise TaskDeclinedError("not my field")

    runner = Runner(Specialist(), store="memory:")
    with pytest.raises(TaskDeclinedError, match="not my field"):
        await runner.run("hi", run_id="r")
    assert transcript(await runner.runs.events("r"))[-1] == "run failed with TaskDeclinedError: not my field"
