"""`baton chat`: a conversation that remembers, shows what happens, asks in place and survives failures and Ctrl-C."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Invoke = Callable[..., Any]

CTRL_D = "\x04"
ECHO = """
def told(request):
    return f"{len(request.messages)} messages, the last: {request.messages[-1].content}"

agent = Agent("Echo", model=ScriptedModel([told], cycle=True, stream=True))
"""


def lines(result: Any) -> list[str]:
    """What was written, without the time it took."""
    return [line.rpartition(" · ")[0] if line.startswith("used:") else line for line in result.output.splitlines()]


def test_it_remembers_the_conversation(write: Write, baton: Invoke) -> None:
    write(ECHO)
    result = baton("chat", "desk", input="hello\n\n  and now?\n")
    assert result.exit_code == 0
    assert lines(result) == [
        "● Echo",
        "1 messages, the last: hello",
        "used: 1 model call · tokens not reported",
        "● Echo",
        "3 messages, the last: and now?",
        "used: 1 model call · tokens not reported",
        "total: 2 model calls · tokens not reported",
    ]


def test_it_shows_transfers_calls_results_and_usage(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool
        async def get_weather(ctx: RunContext, city: str) -> str:
            await ctx.progress("asking the sky", done=1, total=2)
            return f"25 °C in {city}. " * 20

        weather = Agent("Weather", description="Knows the weather.", tools=[get_weather])
        router = Agent("Router", description="Routes.", sub_agents=[weather])
        model = ScriptedModel({
            "Router": [say("", transfer_to("Weather"), usage=Usage(1000, 20))],
            "Weather": [call("get_weather", city="Rome"), say("Sunny.", usage=Usage(500, 4))],
        }, stream=True)
        runner = Runner(router, model=model)
        """
    )
    told = lines(baton("chat", "desk", input="Weather?\n"))
    assert told[:5] == [
        "● Router",
        "  → Weather",
        "● Weather",
        '  ▸ get_weather(city="Rome")',
        "  … asking the sky 1/2",
    ]
    assert told[5].startswith("  ◂ get_weather: 25 °C in Rome. 25 °C")
    assert told[5].endswith("…")
    assert told[6:] == [
        "Sunny.",
        "used: 3 model calls · 1,500 tokens in, 24 out",
        "total: 3 model calls · 1,500 tokens in, 24 out",
    ]


def test_next_turn_includes_tool_results(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool
        def look_up() -> str: return "a secret number: 7"
        def remember(request):
            return "I saw: " + [m.content for m in request.messages if type(m).__name__ == "ToolMessage"][0]
        agent = Agent("Desk", tools=[look_up], model=ScriptedModel([call("look_up"), "Done.", remember]))
        """
    )
    assert "I saw: a secret number: 7" in baton("chat", "desk:agent", input="look it up\nwhat was it?\n").output


def test_values_are_carried_over_but_approvals_are_not(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool(needs_approval=True)
        def note(ctx: RunContext, text: str) -> str:
            ctx.values.set("notes", [*ctx.values.get("notes", []), text])
            return f"notes: {ctx.values['notes']}"
        steps = [call("note", text="one"), "First.", call("note", text="two"), "Second."]
        agent = Agent("Desk", tools=[note], model=ScriptedModel(steps))
        """
    )
    told = baton("chat", "desk:agent", "--value", 'notes=["zero"]', input="go\nalways\ngo\ny\n").output
    assert told.count("? Desk: allow note(") == 2
    assert "notes: ['zero', 'one', 'two']" in told


APPROVAL = """
paid = []
@tool(needs_approval=True)
def refund(amount: int) -> str:
    paid.append(amount)
    return f"{amount} paid"
def verdict(request):
    return f"It said: {request.messages[-1].content}"
agent = Agent("Desk", tools=[refund], model=ScriptedModel([call("refund", amount=30), verdict], cycle=True))
"""


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("y", "It said: 30 paid"),
        ("Yes", "It said: 30 paid"),
        ("always", "It said: 30 paid"),
        ("n", "It said: This call of `refund` was not approved. Do not call it again"),
        ("no, too much", "It said: This call of `refund` was not approved: too much"),
        ("ask the boss first", "It said: This call of `refund` was not approved: ask the boss first"),
    ],
)
def test_approvals_are_asked_for_in_place(write: Write, baton: Invoke, answer: str, told: str) -> None:
    write(APPROVAL)
    output = baton("chat", "desk:agent", input=f"refund me\n{answer}\n").output
    assert "? Desk: allow refund(amount=30)?" in output
    assert told in output
    assert "used: 2 model calls" in output


@pytest.mark.parametrize("unclear", ["", "yes but only half", "always, I guess"])
def test_only_a_bare_yes_allows_anything(write: Write, baton: Invoke, unclear: str) -> None:
    write(APPROVAL)
    output = baton("chat", "desk:agent", input=f"refund me\n{unclear}\nn\n").output
    assert "y approves; n or a reason declines" in output
    assert "30 paid" not in output


@pytest.mark.parametrize(
    ("answer", "told"),
    [("blue and red", "'blue and red'"), ("12", "12"), ('{"a": [true]}', "{'a': [True]}"), ('""', "''"), ("\n7", "7")],
)
def test_other_questions_take_text_or_json(write: Write, baton: Invoke, answer: str, told: str) -> None:
    write(
        """
        @tool
        async def survey(ctx: RunContext) -> str: return repr(await ctx.interrupt("Which colours?"))
        agent = Agent("Desk", tools=[survey], model=ScriptedModel([call("survey"), "Thanks."]))
        """
    )
    output = baton("chat", "desk:agent", input=f"ask me\n{answer}\n").output
    assert "? Desk: Which colours? (about survey())" in output
    assert f"◂ survey: {told}" in output
    assert "Thanks." in output


def test_questions_after_questions(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Asker")
        async def asker(ctx):
            first = await ctx.interrupt("first?")
            second = await ctx.interrupt(None)
            await ctx.say(f"{first} and {second}")
        """
    )
    told = baton("chat", "desk:asker", input="go\none\ntwo\n").output.splitlines()
    assert told[1:] == ["? Asker: first?", "? Asker: an answer is needed", "● Asker", "one and two"]


def test_a_question_of_ones_own_may_ask_for_approval(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool
        async def pay(ctx: RunContext) -> str: return repr(await ctx.interrupt({"kind": "approval", "tool": "pay"}))
        agent = Agent("Desk", tools=[pay], model=ScriptedModel([call("pay"), "Paid."]))
        """
    )
    told = baton("chat", "desk:agent", input="go\ny\n").output
    assert "? Desk: allow pay()?" in told
    assert "◂ pay: {'approved': True}" in told


def test_the_end_of_input_at_a_question(write: Write, baton: Invoke) -> None:
    write(APPROVAL)
    result = baton("chat", "desk:agent", input="refund me\n")
    assert result.exit_code == 0
    assert "not answered; the run stays suspended" in result.output


@pytest.mark.parametrize("farewell", ["exit", "quit", "/quit", "/exit", "EXIT"])
def test_leaving(write: Write, baton: Invoke, farewell: str) -> None:
    write(ECHO)
    assert baton("chat", "desk", input=f"{farewell}\nhello\n").output == ""


def test_help_and_commands_that_are_none(write: Write, baton: Invoke) -> None:
    write(ECHO)
    told = baton("chat", "desk", input="/help\n/foo\n/etc/hosts is what?\n").output
    assert "Ctrl-C          stop the current run" in told
    assert "unknown command /foo; see /help" in told
    assert "1 messages, the last: /etc/hosts is what?" in told


def test_a_failure_ends_the_turn_and_not_the_conversation(write: Write, baton: Invoke) -> None:
    write(
        """
        def count(request): return f"{len(request.messages)} messages"
        steps = ["Hello.", RuntimeError("the wire is cut"), count]
        agent = Agent("Desk", model=ScriptedModel(steps))
        """
    )
    result = baton("chat", "desk:agent", input="hi\nboom\nagain\n")
    assert result.exit_code == 0
    assert "error: the model `scripted` of `Desk` raised RuntimeError: the wire is cut" in result.stderr
    assert "Traceback" not in result.output
    # What nobody reacted to is forgotten: hi, Hello., again.
    assert "3 messages" in result.stdout


def test_tool_results_before_a_failure_are_kept(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool
        def pay() -> str: return "paid 30"
        def last_words(request): return " | ".join(str(m.content) for m in request.messages)
        agent = Agent("Desk", tools=[pay], model=ScriptedModel([call("pay"), RuntimeError("boom"), last_words]))
        """
    )
    assert "pay |  | paid 30 | and?" in baton("chat", "desk:agent", input="pay\nand?\n").stdout


def test_without_a_model_the_way_out_is_named(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Desk")')
    assert "--model PROVIDER:NAME" in baton("chat", "desk:agent", input="hi\n").stderr


def test_ctrl_c_cancels_the_run_and_not_the_program(write: Write, terminal: Callable[..., Any]) -> None:
    write(
        """
        import asyncio
        steps = [ScriptedStream("Once upon a time ", asyncio.Event()), say("Here I am.")]
        agent = Agent("Teller", model=ScriptedModel(steps, stream=True))
        """
    )
    program = terminal("chat", "desk:agent")
    program.type("tell me a story")
    program.read_until("Once upon a time ")
    program.press_ctrl_c()
    program.read_until("cancelled\n")
    program.type("are you there?")
    assert "● Teller\nHere I am.\n" in program.read_until("used: 1 model call")
    code, rest = program.leave()
    assert code == 0
    assert "total: 1 model call" in rest


def test_second_ctrl_c_does_not_wait(write: Write, terminal: Callable[..., Any]) -> None:
    write(
        """
        import asyncio
        class Stubborn:
            name = "stubborn"
            asked = 0
            async def respond(self, request):
                from baton.models import ModelResponse, TextChunk
                Stubborn.asked += 1
                if Stubborn.asked == 1:
                    yield TextChunk("I will not stop. ")
                    try:
                        await asyncio.Event().wait()
                    finally:
                        print("still here", flush=True)
                        await asyncio.Event().wait()
                yield TextChunk("Well then.")
                yield ModelResponse()
        agent = Agent("Mule", model=Stubborn())
        """
    )
    program = terminal("chat", "desk:agent")
    program.type("go")
    program.read_until("I will not stop.")
    program.press_ctrl_c()
    program.read_until("still here")
    program.press_ctrl_c()
    program.read_until("cancelled\n")
    program.type("and now?")
    program.read_until("Well then.")
    assert program.leave()[0] == 0


def test_at_a_real_terminal(write: Write, terminal: Callable[..., Any]) -> None:
    write(ECHO)
    program = terminal("chat", "desk", is_real=True)
    program.read_until("chat with Echo; /help for help, Ctrl-D to leave")
    program.read_until("you › ")
    program.press("half a line")
    program.press_ctrl_c_until("use Ctrl-D or /quit to leave")
    program.read_until("you › ")
    program.type_until("hello", "1 messages, the last: hello")
    program.read_until("you › ")
    program.press(CTRL_D)
    program.read_until("total: ")
    assert program.process.wait(timeout=20) == 0


@pytest.mark.parametrize("key", ["Ctrl-C", "Ctrl-D"])
def test_a_question_at_a_real_terminal_need_not_be_answered(
    write: Write, terminal: Callable[..., Any], key: str
) -> None:
    write(APPROVAL)
    program = terminal("chat", "desk:agent", is_real=True)
    program.read_until("you › ")
    program.type("refund me")
    program.read_until("y, n, a (always), or a reason to decline › ")
    unanswered = "not answered; the run stays suspended"
    if key == "Ctrl-C":
        program.press_ctrl_c_until(unanswered)
    else:
        program.press(CTRL_D)
        program.read_until(unanswered)
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=20) == 0
