"""`baton run`: nothing but the answer on stdout, everything else on stderr, and an exit code that tells the rest."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from baton.events import RunCancelled, RunCompleted, RunFailed, RunStarted, decode_log
from baton.testing import transcript

Write = Callable[..., Path]
Invoke = Callable[..., Any]

WEATHER = """
@tool
async def get_weather(city: str) -> str:
    "Get the current weather for a city."
    return f"25 °C in {city}"

weather = Agent("Weather", description="Knows the weather.", tools=[get_weather])
router = Agent("Router", description="Routes.", sub_agents=[weather])
model = ScriptedModel({
    "Router": [say("One moment.", transfer_to("Weather"), usage=Usage(10, 2))],
    "Weather": [call("get_weather", city="北京"), say("Sunny, 25 °C.", usage=Usage(30, 4))],
})
runner = Runner(router, model=model)
"""


def test_the_answer_alone_goes_to_stdout(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    result = baton("run", "desk", "Weather?")
    assert result.exit_code == 0
    assert result.stdout == "Sunny, 25 °C.\n"
    assert result.stderr.splitlines() == [
        "● Router",
        "  One moment.",
        "  → Weather",
        "● Weather",
        '  ▸ get_weather(city="北京")',
        "  ◂ get_weather: 25 °C in 北京",
        "used: 3 model calls · 40 tokens in, 6 out",
    ]


def test_quiet_says_nothing_else(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    assert baton("run", "desk", "Weather?", "--quiet").output == "Sunny, 25 °C.\n"


def test_json_tells_programs_where_the_run_stands(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    told = json.loads(baton("run", "desk", "Weather?", "--json").stdout)
    assert {key: told[key] for key in ("status", "output", "agent", "interrupts")} == {
        "status": "completed",
        "output": "Sunny, 25 °C.",
        "agent": "Weather",
        "interrupts": [],
    }
    assert told["run_id"]
    assert told["usage"]["total"]["total_tokens"] == 46
    assert told["usage"]["by_agent"]["Weather"]["model_calls"] == 2
    assert told["usage"]["by_model"]["scripted"]["cost"] == 0.0


def test_events_are_a_log_that_can_be_read_back(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    events = decode_log(baton("run", "desk", "Weather?", "--events").stdout.encode())
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunCompleted)
    assert "Router → Weather" in transcript(events)


def test_the_text_comes_from_stdin(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Echo", model=ScriptedModel([lambda request: f"got {request.messages[-1].content!r}"]))')
    assert baton("run", "desk:agent", "-", input="two\nlines").stdout == "got 'two\\nlines'\n"


def test_values_are_json_where_they_are_json(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Teller")
        async def teller(ctx):
            await ctx.say(repr(dict(ctx.values)))
        """
    )
    values = ("--value", "user=Ada", "--value", "age=36", "--value", 'tags=["a=b"]', "--value", "empty=")
    assert baton("run", "desk:teller", "hi", *values).stdout == (
        "{'user': 'Ada', 'age': 36, 'tags': ['a=b'], 'empty': ''}\n"
    )


def test_an_answer_that_is_no_text_is_printed_as_json(write: Write, baton: Invoke) -> None:
    write(
        """
        import dataclasses
        @dataclasses.dataclass
        class Report:
            city: str
            degrees: float
        model = ScriptedModel(['{"city": "Rome", "degrees": 25}'], cycle=True)
        agent = Agent("Reporter", output_type=Report, model=model)
        """
    )
    assert baton("run", "desk:agent", "hi").stdout == '{"city":"Rome","degrees":25.0}\n'
    assert json.loads(baton("run", "desk:agent", "hi", "--json").stdout)["output"] == {"city": "Rome", "degrees": 25.0}


def test_an_agent_that_says_several_things_answers_with_the_last(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Talker")
        async def talker(ctx):
            await ctx.say("first")
            await ctx.say("last")
        """
    )
    result = baton("run", "desk:talker", "hi")
    assert result.stdout == "last\n"
    assert result.stderr.splitlines()[:2] == ["● Talker", "  first"]


def test_an_answer_that_is_not_even_json_is_printed_as_python_shows_it(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Odd")
        async def odd(ctx):
            ctx.output = range(3)
        """
    )
    assert baton("run", "desk:odd", "hi", "-q").stdout == "range(0, 3)\n"


def test_an_agent_with_nothing_to_say_prints_nothing(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Silent")
        async def silent(ctx): ...
        """
    )
    assert baton("run", "desk:silent", "hi", "-q").output == ""


def test_a_suspended_run_ends_with_3_and_its_questions(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool(needs_approval=True)
        def refund(amount: int) -> str: return "paid"
        @tool
        async def survey(ctx: RunContext) -> str: return await ctx.interrupt({"how": "many?"})
        model = ScriptedModel([[call("refund", amount=30), call("survey")]], cycle=True)
        agent = Agent("Desk", tools=[refund, survey], model=model)
        """
    )
    result = baton("run", "desk:agent", "hi", "--quiet")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "the run is suspended; open interrupts:",
        "  1/m1.0/ask1  Desk: allow refund(amount=30)?",
        '  1/m1.1/ask1  Desk: {"how":"many?"} (about survey())',
        "to answer, use `baton chat`, or pass --store and resume the run",
    ]
    told = json.loads(baton("run", "desk:agent", "hi", "--json").stdout)
    assert told["status"] == "suspended"
    assert [asked["id"] for asked in told["interrupts"]] == ["1/m1.0/ask1", "1/m1.1/ask1"]
    assert told["interrupts"][0]["tool_call"]["name"] == "refund"


FAILING = 'agent = Agent("Desk", model=ScriptedModel([RuntimeError("the wire is cut")], cycle=True))'


def test_a_failed_run_ends_with_1_and_one_line(write: Write, baton: Invoke) -> None:
    write(FAILING)
    result = baton("run", "desk:agent", "hi", "-q")
    assert result.exit_code == 1
    assert result.output == "error: the model `scripted` of `Desk` raised RuntimeError: the wire is cut\n"


def test_failed_run_is_printed_in_the_requested_format(write: Write, baton: Invoke) -> None:
    write(FAILING)
    told = baton("run", "desk:agent", "hi", "--json", "-q")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["status"] == "failed"
    assert json.loads(told.stdout)["error"]["type"] == "ModelError"
    events = decode_log(baton("run", "desk:agent", "hi", "--events").stdout.encode())
    assert isinstance(events[-1], RunFailed)


@pytest.mark.parametrize("arguments", [("run", "desk:agent", "hi", "--debug"), ("--debug", "run", "desk:agent", "hi")])
def test_debug_shows_the_traceback(write: Write, baton: Invoke, arguments: tuple[str, ...]) -> None:
    write(FAILING)
    result = baton(*arguments)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "RuntimeError: the wire is cut" in result.stderr


def test_foreign_error_shows_its_type_and_place(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Breaker")
        async def breaker(ctx): raise KeyError("k")
        """
    )
    lines = baton("run", "desk:breaker", "hi", "-q").stderr.splitlines()
    assert lines[0] == "error: KeyError: 'k'"
    assert lines[1].endswith("at Breaker")
    assert lines[2] == "  use --debug to see the traceback"


def test_without_a_model_all_three_ways_out_are_named(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Desk")')
    result = baton("run", "desk:agent", "hi", "-q")
    assert result.exit_code == 1
    for way_out in ("`Desk` has no model", "Agent(model=…)", "Runner(model=…)", "--model PROVIDER:NAME"):
        assert way_out in result.stderr


def test_the_model_named_on_the_command_line(write: Write, baton: Invoke) -> None:
    write(
        """
        from baton.models import register_model
        register_model("toy", lambda name: ScriptedModel([f"I am {name}"]))
        agent = Agent("Desk")
        """
    )
    assert baton("run", "desk:agent", "hi", "-q", "--model", "toy:small").stdout == "I am small\n"
    unknown = baton("run", "desk:agent", "hi", "--model", "no-such-provider:x")
    assert unknown.exit_code == 1
    assert "needs the provider `no-such-provider`" in unknown.stderr


LESSON = """
from baton.models import register_model

register_model("toy", lambda name: ScriptedModel([f"I am {name}"], name=f"toy:{name}", cycle=True))
agent = Agent("Guide", model=scripted_or_real(["I am a script."], cycle=True))
runner = Runner(Agent("Guide"), model=scripted_or_real(["I am a script."], cycle=True))
nobody = Runner(Agent("Guide"))
"""


@pytest.mark.parametrize("target", ["desk:agent", "desk:runner", "desk:nobody"])
def test_scripted_or_real_model_is_replaced_by_the_named_model(write: Write, baton: Invoke, target: str) -> None:
    write(LESSON)
    for command in (["run", target, "hi", "-q"], ["chat", target]):
        result = baton(*command, "--model", "toy:small", input="hi\n")
        assert "I am small" in result.stdout
        assert "I am a script." not in result.stdout
    assert "BATON_MODEL" not in os.environ


def test_unused_model_option_is_refused(write: Write, baton: Invoke) -> None:
    write(
        """
        from baton.models import register_model
        register_model("toy", lambda name: ScriptedModel([], name=f"toy:{name}"))
        agent = Agent("Guide", model=ScriptedModel(["Mine."]))
        """
    )
    result = baton("run", "desk:agent", "hi", "--model", "toy:small")
    assert result.exit_code == 2
    assert (
        "every agent of `desk:agent` has a model of its own, so --model toy:small would have no effect" in result.stderr
    )


def test_a_runner_has_its_own_model(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    result = baton("run", "desk:runner", "hi", "--model", "toy:small")
    assert result.exit_code == 2
    assert "is a Runner, which has its own model" in result.stderr


@pytest.mark.parametrize(
    ("option", "limit"),
    [("--max-transfers=0", "0 transfers"), ("--max-model-calls=1", "1 model_calls"), ("--max-tokens=5", "5 tokens")],
)
def test_limits(write: Write, baton: Invoke, option: str, limit: str) -> None:
    write(WEATHER)
    result = baton("run", "desk", "hi", "-q", option)
    assert result.exit_code == 1
    assert f"the run reached its limit of {limit}" in result.stderr


def test_a_limit_of_time(write: Write, baton: Invoke) -> None:
    write('import asyncio; agent = Agent("Desk", model=ScriptedModel([ScriptedStream("so", asyncio.Event())]))')
    assert "limit of 0.05 seconds" in baton("run", "desk:agent", "hi", "--max-seconds=0.05").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hi", "--json", "--events"), "choose one"),
        (("  ",), "the message is empty"),
        (("hi", "--value", "no-equals-sign"), "write --value KEY=VALUE"),
        (("hi", "--value", "=3"), "write --value KEY=VALUE"),
        (("hi", "--max-transfers", "-1"), "is not in the range"),
        ((), "Missing argument 'TEXT'"),
    ],
)
def test_invalid_arguments_exit_with_2(write: Write, baton: Invoke, arguments: tuple[str, ...], message: str) -> None:
    write(WEATHER)
    result = baton("run", "desk", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("form", ["--json", "--events"])
def test_ctrl_c_cancels_the_run_and_ends_with_130(write: Write, terminal: Callable[..., Any], form: str) -> None:
    write('import asyncio; agent = Agent("Desk", model=ScriptedModel([ScriptedStream("so", asyncio.Event())]))')
    program = terminal("run", "desk:agent", "hi", form)
    program.read_until("● Desk")
    program.press_ctrl_c()
    code, rest = program.leave()
    assert code == 130
    assert "cancelled" in rest
    last = rest.splitlines()[-1]
    if form == "--json":
        assert json.loads(last)["status"] == "cancelled"
    else:
        assert json.loads(last)["type"] == RunCancelled.__name__


def test_warnings_are_one_line(write: Write, terminal: Callable[..., Any]) -> None:
    write(
        """
        @tool
        def broken() -> str: raise ValueError("no such thing")
        child = Agent("Child")
        agent = Agent("Desk", tools=[broken], sub_agents=[child], model=ScriptedModel([call("broken"), "Sorry."]))
        """
    )
    code, told = terminal("run", "desk:agent", "hi").leave()
    assert code == 0
    assert "warning: `Child` has no description" in told
    assert "✗ broken: " in told
    assert "Traceback" not in told
    code, told = terminal("run", "desk:agent", "hi", "--quiet").leave()
    assert told == "Sorry.\n"


@pytest.mark.parametrize("command", ["run", "chat", "check", "graph"])
def test_help_has_examples(baton: Invoke, command: str) -> None:
    told = baton(command, "--help")
    assert told.exit_code == 0
    assert f"  baton {command} desk:router" in told.stdout


def test_version(baton: Invoke) -> None:
    from baton import __version__

    assert baton("--version").stdout == f"baton, version {__version__}\n"


def test_exit_codes_are_documented(baton: Invoke) -> None:
    told = baton("run", "--help").stdout
    for code in ("0    completed", "1    failed", "2    ", "3    suspended", "130  cancelled"):
        assert code in told
