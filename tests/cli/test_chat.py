"""`baton chat` keeps the history, shows events, asks for answers, and survives failures and Ctrl-C."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit.cli.display import Screen

Write = Callable[..., Path]
Invoke = Callable[..., Any]

ECHO = """
def told(request):
    return f"{len(request.messages)} messages, the last: {request.messages[-1].content}"

agent = Agent("Echo", model=ScriptedModel([told], cycle=True, stream=True))
"""


def lines(result: Any) -> list[str]:
    """Return the lines of the output without durations."""
    return [line.rpartition(" · ")[0] if line.startswith("used:") else line for line in result.output.splitlines()]


def test_the_conversation_history_is_kept(write: Write, baton: Invoke) -> None:
    write(ECHO)
    result = baton("chat", "desk", input="hello\n\n  and now?\n")
    assert result.exit_code == 0
    assert lines(result) == [
        "● Echo",
        "1 messages, the last: hello",
        "used: 1 model call",
        "● Echo",
        "3 messages, the last: and now?",
        "used: 1 model call",
        "total: 2 model calls",
    ]


def test_transfers_calls_results_and_usage_are_shown(write: Write, baton: Invoke) -> None:
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
    shown = lines(baton("chat", "desk:runner", input="Weather?\n"))
    assert shown[:5] == [
        "● Router",
        "  → Weather",
        "● Weather",
        '  ▸ get_weather(city="Rome")',
        "  … asking the sky 1/2",
    ]
    assert shown[5].startswith("  ◂ get_weather: 25 °C in Rome. 25 °C")
    assert shown[5].endswith("…")
    assert shown[6:] == [
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
    shown = baton("chat", "desk:agent", "--value", 'notes=["zero"]', input="go\nalways\ngo\ny\n").output
    assert shown.count("? Desk: allow note(") == 2
    assert "notes: ['zero', 'one', 'two']" in shown


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
    ("answer", "shown"),
    [
        ("y", "It said: 30 paid"),
        ("Yes", "It said: 30 paid"),
        ("always", "It said: 30 paid"),
        ("n", "It said: This call of `refund` was not approved. Do not call it again"),
        ("no, too much", "It said: This call of `refund` was not approved: too much"),
        ("n ask the boss first", "It said: This call of `refund` was not approved: ask the boss first"),
    ],
)
def test_approvals_are_requested_during_the_run(write: Write, baton: Invoke, answer: str, shown: str) -> None:
    write(APPROVAL)
    output = baton("chat", "desk:agent", input=f"refund me\n{answer}\n").output
    assert "? Desk: allow refund(amount=30)?" in output
    assert shown in output
    assert "used: 2 model calls" in output


@pytest.mark.parametrize("unclear", ["", "yes but only half", "always, I guess"])
def test_only_an_unambiguous_yes_approves(write: Write, baton: Invoke, unclear: str) -> None:
    write(APPROVAL)
    output = baton("chat", "desk:agent", input=f"refund me\n{unclear}\nn\n").output
    assert "y approves; n, or n and a reason, declines" in output
    assert "30 paid" not in output


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("blue and red", "'blue and red'"), ("12", "12"), ('{"a": [true]}', "{'a': [True]}"), ('""', "''"), ("\n7", "7")],
)
def test_other_interrupts_accept_text_or_json(write: Write, baton: Invoke, answer: str, shown: str) -> None:
    write(
        """
        @tool
        async def survey(ctx: RunContext) -> str: return repr(await ctx.interrupt("Which colours?"))
        agent = Agent("Desk", tools=[survey], model=ScriptedModel([call("survey"), "Thanks."]))
        """
    )
    output = baton("chat", "desk:agent", input=f"ask me\n{answer}\n").output
    assert "? Desk: Which colours? (about survey())" in output
    assert f"◂ survey: {shown}" in output
    assert "Thanks." in output


def test_consecutive_interrupts_are_asked_one_after_the_other(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Asker")
        async def asker(ctx):
            first = await ctx.interrupt("first?")
            second = await ctx.interrupt(None)
            await ctx.say(f"{first} and {second}")
        """
    )
    shown = baton("chat", "desk:asker", input="go\none\ntwo\n").output.splitlines()
    assert shown[1:] == ["? Asker: first?", "? Asker: an answer is needed", "● Asker", "one and two"]


def test_a_custom_interrupt_can_ask_for_approval(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool
        async def pay(ctx: RunContext) -> str: return repr(await ctx.interrupt({"kind": "approval", "tool": "pay"}))
        agent = Agent("Desk", tools=[pay], model=ScriptedModel([call("pay"), "Paid."]))
        """
    )
    shown = baton("chat", "desk:agent", input="go\ny\n").output
    assert "? Desk: allow pay()?" in shown
    assert "◂ pay: {'approved': True}" in shown


def test_the_end_of_input_at_an_interrupt_leaves_the_run_suspended(write: Write, baton: Invoke) -> None:
    write(APPROVAL)
    result = baton("chat", "desk:agent", input="refund me\n")
    assert result.exit_code == 3
    assert "not answered; the run stays suspended" in result.output


@pytest.mark.parametrize("farewell", ["exit", "quit", "/quit", "/exit", "EXIT"])
def test_farewell_words_end_the_conversation(write: Write, baton: Invoke, farewell: str) -> None:
    write(ECHO)
    assert baton("chat", "desk", input=f"{farewell}\nhello\n").output == ""


def test_help_and_unknown_commands(write: Write, baton: Invoke) -> None:
    write(ECHO)
    shown = baton("chat", "desk", input="/help\n/foo\n/etc/hosts is what?\n").output
    assert "Ctrl-C           stop the current run" in shown
    assert "unknown command /foo; see /help" in shown
    assert "1 messages, the last: /etc/hosts is what?" in shown


def test_a_failure_does_not_end_the_conversation(write: Write, baton: Invoke) -> None:
    write(
        """
        def count(request): return f"{len(request.messages)} messages"
        steps = ["Hello.", RuntimeError("the wire is cut"), count]
        agent = Agent("Desk", model=ScriptedModel(steps))
        """
    )
    result = baton("chat", "desk:agent", input="hi\nboom\nagain\n")
    assert result.exit_code == 1
    assert "error: the model `scripted` of `Desk` raised RuntimeError: the wire is cut" in result.stderr
    assert "Traceback" not in result.output
    # The failed message is not kept: hi, Hello., again.
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


def test_without_a_model_the_error_names_the_option(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Desk")')
    assert "--model PROVIDER:NAME" in baton("chat", "desk:agent", input="hi\n").stderr


TEAM = """
def told(request):
    return f"{len(request.messages)} messages, the last: {request.messages[-1].content}"

billing = Agent("Billing", description="Knows bills.", model=ScriptedModel([told], cycle=True))
router = Agent("Router", sub_agents=[billing], model=ScriptedModel([transfer_to("Billing"), "I am the router."]))
"""


def test_the_active_agent_is_remembered_without_a_store(write: Write, baton: Invoke) -> None:
    write(TEAM)
    shown = baton("chat", "desk:router", input="my bill?\nand now?\n").output.splitlines()
    assert [line for line in shown if line.startswith("●")] == ["● Router", "● Billing", "● Billing"]
    assert not any("thread" in line for line in shown)


def test_the_store_of_a_runner_keeps_the_conversation(write: Write, baton: Invoke) -> None:
    write(TEAM + 'runner = Runner(router, store="own.db")\n')
    first = baton("chat", "desk:runner", input="my bill?\n").output.splitlines()[0]
    thread = first.removeprefix("thread ").partition(",")[0]
    assert baton("runs", "ls", "--store", "own.db", "--thread", thread).stdout.count("completed") == 1
    shown = baton("chat", "desk:runner", "--thread", thread, input="again\n").output
    assert "1 run so far" in shown
    assert "● Billing" in shown
    assert "● Router" not in shown


TWO_QUESTIONS = """
@tool
async def ask(ctx: RunContext, about: str) -> str:
    return f"{about}: {await ctx.interrupt(about + '?')}"
def told(request):
    return " and ".join(m.content for m in request.messages if type(m).__name__ == "ToolMessage")
both = say("", call("ask", about="colour"), call("ask", about="size"))
agent = Agent("Desk", tools=[ask], model=ScriptedModel([both, told, told]))
"""


def test_an_invalid_answer_is_asked_again_alone(write: Write, baton: Invoke) -> None:
    # It ended the turn, and the valid answer was asked again with it.
    write(
        """
        @tool
        async def ask(ctx: RunContext, about: str) -> str:
            return f"{about}: {await ctx.interrupt(about + '?', schema={'type': 'integer'})}"
        def told(request):
            return " and ".join(m.content for m in request.messages if type(m).__name__ == "ToolMessage")
        both = say("", call("ask", about="age"), call("ask", about="size"))
        agent = Agent("Desk", tools=[ask], model=ScriptedModel([both, told]))
        """
    )
    shown = baton("chat", "desk:agent", input="go\n7\nlarge\n8\n").output
    assert "'large' is not of type 'integer'" in shown
    assert shown.count("? Desk: age?") == 1
    assert "age: 7 and size: 8" in shown


@pytest.mark.parametrize("text", ["ask the boss first", "what is this?", "quit", "nonsense"])
def test_ordinary_text_at_an_approval_is_not_a_refusal(write: Write, baton: Invoke, text: str) -> None:
    write(APPROVAL)
    output = baton("chat", "desk:agent", input=f"refund me\n{text}\ny\n").output
    assert "y approves; n, or n and a reason, declines" in output
    assert "It said: 30 paid" in output


@pytest.mark.parametrize("command", ["/quit", "/exit"])
def test_quit_at_a_question_leaves_the_run_suspended(write: Write, baton: Invoke, command: str) -> None:
    # It became the reason of a refusal.
    write(APPROVAL)
    result = baton("chat", "desk:agent", "--store", "runs.db", input=f"refund me\n{command}\nhello\n")
    assert (result.exit_code, "It said" in result.output) == (3, False)
    assert "not answered; the run stays suspended" in result.output
    assert "suspended" in baton("runs", "ls", "--store", "runs.db").stdout


def test_commands_work_at_a_question(write: Write, baton: Invoke) -> None:
    write(APPROVAL)
    shown = baton("chat", "desk:agent", input="refund me\n/help\n/cancel\n/resume\n/cancel\n").output
    assert "cancel that run" in shown
    assert shown.count("? Desk: allow refund(amount=30)?") == 2
    assert "it is now cancelled" in shown
    assert shown.count("no run of this conversation is suspended") == 2


def test_an_answer_is_not_used_for_another_run(write: Write, baton: Invoke) -> None:
    # The ids of questions are unique in a run only.
    write(TWO_QUESTIONS.replace("[both, told, told]", "[both, both, told]"))
    shown = baton("chat", "desk:agent", input="go\nred\n/cancel\ngo\nblue\nM\n").output
    assert shown.count("? Desk: colour?") == 2
    assert "colour: blue and size: M" in shown


def test_only_y_or_n_decides_about_the_last_run(write: Write, baton: Invoke) -> None:
    # Any other text cancelled it.
    write(APPROVAL)
    thread = ("--store", "runs.db", "--thread", "u42")
    baton("run", "desk:agent", "refund", *thread)
    shown = baton("chat", "desk:agent", *thread, input="what?\ny\ny\n").output
    assert "y resumes it; n cancels it" in shown
    assert "It said: 30 paid" in shown


def test_open_tasks_are_shown_in_the_prompt(write: Write, baton: Invoke) -> None:
    write(
        """
        pay = Agent("Pay", description="d")
        booking = Agent("Booking", description="d", handoffs=[handoff(pay, return_to="caller", until="finished")])
        desk = Agent("Desk", handoffs=[handoff(booking, return_to="caller", until="finished")])
        model = ScriptedModel({
            "Desk": [call("transfer_to_booking"), "Booked."],
            "Booking": ["Which day?", call("transfer_to_pay"), call("finish_task", result="Monday")],
            "Pay": ["Which card?", call("finish_task", result="paid")],
        })
        runner = Runner(desk, model=model)
        """
    )
    shown = baton("chat", "desk", input="A table\nMonday\nVisa\n").output
    assert "  task of Booking until it is finished" in shown
    assert "task of Pay finished: paid" in shown
    assert "task of Booking finished: Monday" in shown
    assert "The task is finished." not in shown


def test_the_prompt_names_the_agents_of_open_tasks(
    monkeypatch: pytest.MonkeyPatch, write: Write, baton: Invoke
) -> None:
    prompts: list[str] = []

    def read(self: Screen, prompt: str) -> str:
        prompts.append(prompt)
        if len(prompts) > 2:
            raise EOFError
        return "hello"

    monkeypatch.setattr(Screen, "read", read)
    write(
        """
        booking = Agent("Booking", description="d")
        desk = Agent("Desk", handoffs=[handoff(booking, return_to="caller", until="finished")])
        model = ScriptedModel({
            "Desk": [call("transfer_to_booking"), "Booked."],
            "Booking": ["Which day?", call("finish_task", result="Monday")],
        })
        runner = Runner(desk, model=model)
        """
    )
    baton("chat", "desk")
    assert prompts == ["you › ", "you (Desk → Booking) › ", "you › "]


def test_a_question_of_a_nested_task_is_shown_as_text(write: Write, baton: Invoke) -> None:
    write(
        """
        booking = Agent("Booking", description="d")
        desk = Agent("Desk", handoffs=[handoff(booking, return_to="caller", until="finished")])
        model = ScriptedModel({
            "Desk": [call("transfer_to_booking"), "Booked."],
            "Booking": ["Which day?", call("finish_task", result="Monday")],
        })
        runner = Runner(SequentialAgent("Flow", sub_agents=[desk]), model=model)
        """
    )
    shown = baton("chat", "desk", input="A table\nMonday\n").output
    assert "? Booking: Which day?" in shown
    assert "Booked." in shown


@pytest.mark.parametrize(
    ("script", "input", "code"),
    [
        ('["one", ModelError("gone"), "three"]', "a\nb\nc\n", 1),
        ('["one"]', "a\n/unknown\n", 1),
        ('["one"]', "a\n/dismiss\n", 1),
        ('[call("pay")]', "a\n", 3),
        ('[call("pay"), "paid"]', "a\ny\n", 0),
        ('[call("pay"), "paid"]', "a\n/cancel\n", 0),
    ],
)
def test_the_exit_code_tells_a_script_how_a_piped_conversation_ended(
    write: Write, baton: Invoke, script: str, input: str, code: int
) -> None:
    write(
        f"""
        from batonkit.errors import ModelError

        @tool(needs_approval=True)
        async def pay() -> str:
            return "paid"

        agent = Agent("Desk", tools=[pay], model=ScriptedModel({script}))
        """
    )
    assert baton("chat", "desk", input=input).exit_code == code
