"""`baton run`: only the answer on stdout, everything else on stderr, and an exit code for each status."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit.log import RunCompleted, RunFailed, RunStarted, decode_log
from batonkit.testing import transcript

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


def test_only_the_answer_goes_to_stdout(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    result = baton("run", "desk", "Weather?")
    assert result.exit_code == 0
    assert result.stdout == "Sunny, 25 °C.\n"
    assert result.stderr.splitlines() == [
        "using `desk:runner`; to use another, name it: `desk:weather`, `desk:router`",
        "● Router",
        "  One moment.",
        "  → Weather",
        "● Weather",
        '  ▸ get_weather(city="北京")',
        "  ◂ get_weather: 25 °C in 北京",
        "used: 3 model calls · 40 tokens in, 6 out",
    ]


def test_quiet_prints_only_the_answer(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    assert baton("run", "desk", "Weather?", "--quiet").output == "Sunny, 25 °C.\n"


def test_json_has_status_output_and_usage(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    result_of_command = json.loads(baton("run", "desk", "Weather?", "--json").stdout)
    assert {key: result_of_command[key] for key in ("status", "output", "agent", "interrupts")} == {
        "status": "completed",
        "output": "Sunny, 25 °C.",
        "agent": "Weather",
        "interrupts": [],
    }
    assert result_of_command["run_id"]
    assert result_of_command["usage"]["total"]["total_tokens"] == 46
    assert result_of_command["usage"]["by_agent"]["Weather"]["model_calls"] == 2
    assert result_of_command["usage"]["by_model"]["scripted"]["cost"] == 0.0


def test_events_are_a_log_that_can_be_read_back(write: Write, baton: Invoke) -> None:
    write(WEATHER)
    events = decode_log(baton("run", "desk", "Weather?", "--events").stdout.encode())
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunCompleted)
    assert "Router → Weather" in transcript(events)


def test_the_message_can_be_read_from_stdin(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Echo", model=ScriptedModel([lambda request: f"got {request.messages[-1].content!r}"]))')
    assert baton("run", "desk:agent", "-", input="two\nlines").stdout == "got 'two\\nlines'\n"


def test_values_are_parsed_as_json_if_possible(write: Write, baton: Invoke) -> None:
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


def test_a_structured_answer_is_printed_as_json(write: Write, baton: Invoke) -> None:
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


def test_the_last_message_is_the_answer(write: Write, baton: Invoke) -> None:
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


def test_an_answer_that_is_not_json_is_printed_as_its_repr(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Odd")
        async def odd(ctx):
            ctx.output = range(3)
        """
    )
    assert baton("run", "desk:odd", "hi", "-q").stdout == "range(0, 3)\n"


def test_an_empty_answer_prints_nothing(write: Write, baton: Invoke) -> None:
    write(
        """
        @agent("Silent")
        async def silent(ctx): ...
        """
    )
    assert baton("run", "desk:silent", "hi", "-q").output == ""


def test_a_suspended_run_exits_with_3_and_lists_its_interrupts(write: Write, baton: Invoke) -> None:
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
    result_of_command = json.loads(baton("run", "desk:agent", "hi", "--json").stdout)
    assert result_of_command["status"] == "suspended"
    assert [interrupt["id"] for interrupt in result_of_command["interrupts"]] == ["1/m1.0/ask1", "1/m1.1/ask1"]
    assert result_of_command["interrupts"][0]["tool_call"]["name"] == "refund"


FAILING = 'agent = Agent("Desk", model=ScriptedModel([RuntimeError("the wire is cut")], cycle=True))'


def test_a_failed_run_exits_with_1_and_one_line(write: Write, baton: Invoke) -> None:
    write(FAILING)
    result = baton("run", "desk:agent", "hi", "-q")
    assert result.exit_code == 1
    assert result.output == "error: the model `scripted` of `Desk` raised RuntimeError: the wire is cut\n"


def test_failed_run_is_printed_in_the_requested_format(write: Write, baton: Invoke) -> None:
    write(FAILING)
    result_of_command = baton("run", "desk:agent", "hi", "--json", "-q")
    assert result_of_command.exit_code == 1
    assert json.loads(result_of_command.stdout)["status"] == "failed"
    assert json.loads(result_of_command.stdout)["error"]["type"] == "ModelError"
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


def test_without_a_model_the_error_names_all_options(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Desk")')
    result = baton("run", "desk:agent", "hi", "-q")
    assert result.exit_code == 1
    for option in ("`Desk` has no model", "Agent(model=…)", "Runner(model=…)", "--model PROVIDER:NAME"):
        assert option in result.stderr


def test_the_model_option_sets_the_model(write: Write, baton: Invoke) -> None:
    write(
        """
        from batonkit.models import register_model
        register_model("toy", lambda name: ScriptedModel([f"I am {name}"]))
        agent = Agent("Desk")
        """
    )
    assert baton("run", "desk:agent", "hi", "-q", "--model", "toy:small").stdout == "I am small\n"
    unknown = baton("run", "desk:agent", "hi", "--model", "no-such-provider:x")
    assert unknown.exit_code == 1
    assert "needs the provider `no-such-provider`" in unknown.stderr


LESSON = """
from batonkit.models import register_model

register_model("toy", lambda name: ScriptedModel([f"I am {name}"], name=f"toy:{name}", cycle=True))
agent = Agent("Guide", model=scripted_or_real(["I am a script."], cycle=True))
runner = Runner(Agent("Guide"), model=scripted_or_real(["I am a script."], cycle=True))
no_model = Runner(Agent("Guide"))
"""


@pytest.mark.parametrize("target", ["desk:agent", "desk:runner", "desk:no_model"])
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
        from batonkit.models import register_model
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
    write(f"{WEATHER}\nfrom batonkit.models import register_model\nregister_model('toy', lambda name: model)")
    result = baton("run", "desk:runner", "hi", "--model", "toy:small")
    assert result.exit_code == 2
    assert "is a Runner, which has its own model" in result.stderr


@pytest.mark.parametrize(
    ("option", "limit"),
    [("--max-transfers=0", "0 transfers"), ("--max-model-calls=1", "1 model_calls"), ("--max-tokens=5", "5 tokens")],
)
def test_limit_options_stop_the_run(write: Write, baton: Invoke, option: str, limit: str) -> None:
    write(WEATHER)
    result = baton("run", "desk", "hi", "-q", option)
    assert result.exit_code == 1
    assert f"the run reached its limit of {limit}" in result.stderr


def test_the_time_limit_option_stops_the_run(write: Write, baton: Invoke) -> None:
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


@pytest.mark.parametrize("command", ["run", "chat", "check", "graph"])
def test_help_has_examples(baton: Invoke, command: str) -> None:
    result_of_command = baton(command, "--help")
    assert result_of_command.exit_code == 0
    assert f"  baton {command} desk:router" in result_of_command.stdout


def test_version_is_printed(baton: Invoke) -> None:
    from batonkit import __version__

    assert baton("--version").stdout == f"baton, version {__version__}\n"


def test_exit_codes_are_documented(baton: Invoke) -> None:
    result_of_command = baton("run", "--help").stdout
    for code in ("0    completed", "1    failed", "2    ", "3    suspended", "130  cancelled"):
        assert code in result_of_command
