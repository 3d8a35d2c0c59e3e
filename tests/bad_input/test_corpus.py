"""Wrong arguments by combination: each raises a BatonError with a message, never a raw Python error."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import closing
from operator import attrgetter
from typing import Any

import click
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient
from tests.bad_input.corpus import POOL, Target

from batonkit import (
    Agent,
    AgentContext,
    AgentOptions,
    Approval,
    BaseAgent,
    BatonError,
    FallbackModel,
    Limits,
    LoopAgent,
    ModelSettings,
    ParallelAgent,
    RetryModel,
    Runner,
    SequentialAgent,
    agent,
    deep_agent,
    guardrail,
    handoff,
    plan_execute,
    supervisor,
    then_transfer,
    tool,
)
from batonkit.agents import Compaction, StopAt, with_guardrails
from batonkit.cli.main import COMMANDS, main
from batonkit.handoffs import prompt_with_handoff_instructions
from batonkit.mcp import MCPToolset
from batonkit.middleware import (
    Cache,
    ClearToolResults,
    PromptCache,
    RateLimit,
    RequireAnnouncedHandoff,
    ValidateOutput,
)
from batonkit.models import ModelPrice, resolve_model
from batonkit.otel import OTelObserver
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, TurnDetection
from batonkit.runs import BackgroundRunner, HandoffRules, HistoryOptions
from batonkit.serve import (
    APIKeyAuth,
    BasicAuth,
    BearerAuth,
    ClientOptions,
    EventStreams,
    JWTAuth,
    MutualTLSAuth,
    a2a_app,
    agui_app,
    ai_sdk_app,
    api_app,
    mcp_app,
    mcp_server,
    openai_app,
    runner_lifespan,
)
from batonkit.serve.studio import studio_app
from batonkit.stores import KeyValueStore, MemoryStore, PostgresStore, SQLiteStore, resolve_store
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, call
from batonkit.tools import with_tool_guardrails
from batonkit.worker import LocalEngine, Worker
from batonkit.workflows import make_executor, make_planner, make_replanner


class Own(BaseAgent[Any, str]):
    """An agent without a model."""

    async def run(self, ctx: AgentContext) -> None:
        """Do nothing."""


async def body(ctx: AgentContext) -> None:
    """Do nothing."""


def look_up(city: str) -> str:
    """Look something up."""
    return city


async def check(ctx: Any, value: Any) -> bool:
    """Accept everything."""
    return True


def as_tool(given: Any) -> Any:
    """Make a tool of anything."""
    return tool(given)


def fallback_to(first: Any) -> Any:
    """Make a model that falls back to anything."""
    return FallbackModel(first)


def from_function(**options: Any) -> Any:
    """Make an agent of a function."""
    return agent(**options)(body)


A, B, LIVE = Agent("A"), Agent("B"), RealtimeAgent("Live")
BACKGROUND = BackgroundRunner(Runner(A, store="memory:"))
MODEL = ScriptedModel(["x"], cycle=True)
BASE = {
    "description": "text",
    "examples": "list of texts",
    "sub_agents": "agents",
    "handoffs": "agents",
    "disallow_transfer_to_parent": "flag",
    "accepts": "strict callback of two?",
    "hooks": "object?",
}
WITH_TOOLS = {
    **BASE,
    "name": "name",
    "instructions": "prompt",
    "tools": "agents",
    "concurrent_tools": "flag",
    "max_parallel_tools": "count?",
    "template": "flag",
    "exit_tool": "flag",
}
WORKFLOW = {"name": "name", "description": "text", "sub_agents": "agents", "handoffs": "agents", "hooks": "object?"}
TOOL = {
    "name": "text?",
    "description": "text?",
    "needs_approval": "approval",
    "timeout": "seconds?",
    "on_error": "error policy",
    "effect": "choice",
    "return_directly": "flag",
    "strict": "flag",
    "input_guardrails": "agents",
    "output_guardrails": "agents",
    "in_thread": "flag",
    "is_enabled": "approval",
}
RUNNER = {
    "model": "model?",
    "limits": "object?",
    "hooks": "object?",
    "observers": "agents",
    "handoff_rules": "object?",
    "extra_agents": "agents",
    "prompt_language": "choice",
}
APP = {
    "auth": "credentials?",
    "allow_anonymous": "flag",
    "cors_origins": "list of texts",
    "max_body": "count",
    "show_errors": "flag",
    "context_factory": "callback?",
}
SETTINGS = {
    "temperature": "number?",
    "top_p": "number?",
    "max_tokens": "integer?",
    "parallel_tool_calls": "flag?",
    "reasoning_effort": "text?",
    "stop_sequences": "list of texts?",
    "seed": "integer?",
    "timeout": "number?",
    "extra_headers": "dict?",
    "extra_body": "dict?",
}
COUNTS = dict.fromkeys(("model_calls", "transfers", "idle_cycles", "open_tasks", "tokens"), "count?")

CONSTRUCTORS = (
    Target(
        Agent,
        {"name": "A"},
        {
            **WITH_TOOLS,
            "model": "model?",
            "model_settings": "object?",
            "tool_choice": "text",
            "max_turns": "count",
            "on_max_turns": "choice",
            "tool_use_behavior": "function of two",
            "history": "history?",
            "compaction": "object?",
            "output_key": "text?",
            "input_guardrails": "agents",
            "output_guardrails": "agents",
        },
    ),
    Target(
        AgentOptions,
        {},
        {
            "model": "nothing?",
            "model_settings": "object?",
            "instructions": "prompt?",
            "tools": "agents?",
            "max_turns": "count?",
        },
    ),
    Target(StopAt, {}, {"tools": "list of texts"}),
    Target(
        ClientOptions,
        {},
        {
            "models": "list of texts",
            "model_settings": "list of texts",
            "instructions": "flag",
            "tools": "flag",
            "max_turns": "flag",
        },
    ),
    Target(Own, {"name": "A"}, {**BASE, "history": "history?"}),
    Target(from_function, {"name": "A"}, {**BASE, "description": "text?", "history": "history?"}),
    Target(RealtimeAgent, {"name": "A"}, {**WITH_TOOLS, "voice": "text?", "tool_choice": "text"}),
    Target(SequentialAgent, {"name": "A", "sub_agents": [B]}, WORKFLOW),
    Target(LoopAgent, {"name": "A", "sub_agents": [B]}, {**WORKFLOW, "max_iterations": "count"}),
    Target(
        ParallelAgent,
        {"name": "A", "sub_agents": [B]},
        {
            **WORKFLOW,
            "max_concurrency": "count?",
            "on_error": "choice",
            "branch_timeout": "seconds?",
            "reducers": "object?",
        },
    ),
    Target(then_transfer, {"agent": A, "to": "B"}, {"agent": "object", "to": "text", "on_error": "choice"}),
    Target(
        with_guardrails,
        {"agent": A, "input_guardrails": [check]},
        {"agent": "object", "input_guardrails": "agents", "output_guardrails": "agents", "mode": "choice"},
    ),
    Target(
        with_tool_guardrails,
        {"tool": look_up, "input_guardrails": [check]},
        {"input_guardrails": "agents", "output_guardrails": "agents", "on_trip": "choice"},
    ),
    Target(guardrail, {"check": check}, {"name": "text?", "parallel": "flag"}),
    Target(prompt_with_handoff_instructions, {}, {"prompt": "text"}),
    Target(tool, {}, TOOL, first=(look_up,)),
    Target(as_tool, {}, {"given": "function?"}, label="tool"),
    Target(
        handoff,
        {"agent": A},
        {
            "agent": "text",
            "tool_name_override": "text?",
            "tool_description_override": "text?",
            "on_handoff": "class only?",
            "input_filter": "class only?",
            "is_enabled": "approval",
            "needs_approval": "approval",
            "return_to": "text?",
            "until": "choice",
        },
    ),
    Target(
        A.as_tool,
        {},
        {
            "name": "text?",
            "description": "text?",
            "history": "history",
            "output_extractor": "callback?",
            "stream_events": "flag",
            "limits": "object?",
            "needs_approval": "approval",
            "is_enabled": "approval",
        },
    ),
    Target(Compaction, {"at_tokens": 100}, {"at_tokens": "count", "keep_last": "count", "instructions": "text?"}),
    Target(Limits, {}, {**COUNTS, "seconds": "seconds?", "cost": "seconds?"}),
    Target(
        ModelPrice,
        {"input": 1.0, "output": 2.0},
        {
            "input": "seconds",
            "output": "seconds",
            "cached_input": "seconds?",
            "cache_write": "seconds?",
            "reasoning": "seconds?",
        },
    ),
    Target(ModelSettings, {}, SETTINGS),
    Target(
        Approval, {"approved": True}, {"approved": "flag", "reason": "text", "arguments": "dict?", "always": "flag"}
    ),
    Target(
        ClearToolResults,
        {},
        {"keep_last": "count", "over_tokens": "count?", "keep_tools": "list of texts", "note": "text"},
    ),
    Target(ValidateOutput, {"function": check}, {"function": "strict callback of two", "holds_deltas": "flag"}),
    Target(Cache, {"store": {}}, {"store": "address or dict", "on_miss": "choice"}),
    Target(RateLimit, {"per_minute": 5}, {"per_minute": "count?", "tokens_per_minute": "count?"}),
    Target(PromptCache, {}, {"ttl": "choice"}),
    Target(RequireAnnouncedHandoff, {}, {"phrases": "list of texts?", "holds_deltas": "flag"}),
    Target(
        RetryModel,
        {"model": MODEL},
        {
            "model": "model",
            "attempts": "count",
            "initial_delay": "seconds",
            "max_delay": "seconds",
            "max_retry_after": "seconds",
            "jitter": "fraction",
            "after_output": "flag",
            "should_retry": "callback?",
            "sleep": "callback",
            "random": "callback",
        },
    ),
    Target(fallback_to, {"first": MODEL}, {"first": "model"}, label="Fallback"),
    Target(FallbackModel, {}, {"should_fall_back": "callback?"}, first=(MODEL, MODEL)),
    Target(resolve_model, {}, {"model": "nothing"}),
    Target(
        Runner,
        {"agent": A},
        {
            **RUNNER,
            "agent": "object",
            "model_settings": "object?",
            "store": "store?",
            "history": "history",
            "compaction": "object?",
            "context_factory": "callback?",
        },
    ),
    Target(HandoffRules, {}, {"multiple_transfers": "choice", "max_corrections": "count", "loop_fallback": "text?"}),
    Target(HistoryOptions, {}, {"policy": "history", "show_transfers": "flag", "input_filter": "class only?"}),
    Target(BackgroundRunner, {}, {"runner": "object"}),
    Target(
        RealtimeRunner,
        {"agent": LIVE, "model": ScriptedRealtimeModel([])},
        {
            **RUNNER,
            "agent": "object",
            "model": "model",
            "settings": "object?",
            "text_model": "model?",
            "store": "store?",
            "async_tool_calls": "flag",
            "max_reconnects": "count",
            "reconnect_delay": "seconds",
            "guardrail_interval": "count",
        },
    ),
    Target(
        RealtimeSettings,
        {},
        {
            "modality": "choice",
            "voice": "text?",
            "speed": "number?",
            "input_format": "choice",
            "output_format": "choice",
            "turn_detection": "object?",
            "transcription": "text?",
            "language": "text?",
            "extra_body": "dict?",
        },
    ),
    Target(
        TurnDetection,
        {},
        {"kind": "choice", "create_response": "flag", "interrupt_response": "flag", "threshold": "number?"},
    ),
    Target(
        supervisor, {"agent": A, "sub_agents": [B]}, {"agent": "object", "sub_agents": "agents", "on_error": "choice"}
    ),
    Target(
        deep_agent,
        {"model": MODEL},
        {
            "tools": "agents",
            "sub_agents": "agents",
            "name": "name",
            "description": "text",
            "instructions": "text",
            "files": "flag",
            "general_purpose": "flag",
            "task_limits": "object?",
            "max_turns": "count",
        },
    ),
    Target(
        plan_execute,
        {"planner": A, "executor": B, "replanner": Agent("C")},
        {
            "planner": "object",
            "executor": "object",
            "replanner": "object",
            "name": "name",
            "description": "text",
            "max_iterations": "count",
            "parallel_steps": "number of steps",
        },
    ),
    Target(
        make_planner, {"model": MODEL}, {"model": "model?", "name": "name", "instructions": "text", "method": "choice"}
    ),
    Target(
        make_executor,
        {"model": MODEL},
        {"model": "model?", "tools": "agents", "name": "name", "instructions": "text", "max_turns": "count"},
    ),
    Target(make_replanner, {"model": MODEL}, {"model": "model?", "name": "name", "instructions": "text"}),
    Target(resolve_store, {}, {"where": "address"}),
    Target(SQLiteStore, {"path": "runs.db"}, {"path": "address", "durability": "choice", "timeout": "seconds"}),
    Target(PostgresStore, {"url": "postgresql://host/db"}, {"max_connections": "count", "timeout": "seconds"}),
    Target(KeyValueStore, {"backend": MemoryStore()}, {"backend": "nothing"}),
    Target(MemoryStore, {}, {"clock": "callback"}),
    Target(OTelObserver, {}, {"content": "flag?", "redact": "callback?"}),
    Target(
        Worker,
        {"runner": Runner(A, store=MemoryStore())},
        {"concurrency": "count", "max_deaths": "count", "accept_changes": "flag"},
    ),
    Target(LocalEngine, {}, {"interval": "seconds"}),
    Target(
        MCPToolset,
        {"server": "http://localhost/mcp"},
        {
            "prefix": "text?",
            "needs_approval": "approval or names?",
            "headers": "dict?",
            "allow_sampling": "flag",
            "strict": "flag",
            "timeout": "seconds?",
            "connect_timeout": "seconds",
            "suspend_timeout": "seconds",
        },
    ),
    Target(
        api_app,
        {},
        {**APP, "heartbeat": "seconds", "client_options": "object?", "client_history": "flag", "inspection": "flag"},
        first=(A,),
    ),
    Target(
        studio_app,
        {},
        {"auth": APP["auth"], "context_factory": APP["context_factory"], "can_write": "flag"},
        first=(A,),
    ),
    Target(EventStreams, {}, {"heartbeat": "seconds", "show_errors": "flag"}, first=(BACKGROUND,)),
    Target(runner_lifespan, {}, {"drain": "seconds"}, first=(BACKGROUND,)),
    Target(
        agui_app, {}, {**APP, "on_disconnect": "choice", "heartbeat": "seconds", "client_history": "flag"}, first=(A,)
    ),
    Target(
        openai_app,
        {},
        {
            **APP,
            "on_disconnect": "choice",
            "heartbeat": "seconds",
            "thread_from": "list of texts",
            "client_history": "flag",
            "answer_in_chat": "flag",
            "show_agents": "flag",
        },
        first=(A,),
    ),
    Target(ai_sdk_app, {}, {**APP, "on_disconnect": "choice", "heartbeat": "seconds"}, first=(A,)),
    Target(a2a_app, {}, {**APP, "store": "store?"}, first=(A,)),
    Target(mcp_app, {}, {**APP, "store": "store?", "tool_per_agent": "flag"}, first=(A,)),
    Target(mcp_server, {}, {"store": "store?", "tool_per_agent": "flag"}, first=(A,)),
    Target(BearerAuth, {"tokens": "x"}, {"name": "text", "format": "text"}),
    Target(APIKeyAuth, {"keys": "x"}, {"location": "choice", "key_name": "text", "name": "text"}),
    Target(BasicAuth, {"passwords": {"a": "b"}}, {"passwords": "passwords", "name": "text"}),
    Target(MutualTLSAuth, {"header": "x", "proxies": ["127.0.0.1"]}, {"header": "text", "name": "text"}),
    Target(JWTAuth, {"key": "x" * 40, "algorithms": ["HS256"], "audience": "a"}, {"claim": "text", "name": "text"}),
)


def new_runner() -> Runner[Any, str]:
    """Create a runner that would answer, with stored runs."""
    return Runner(Agent("A", model=ScriptedModel(["hello"], cycle=True)), store="memory:")


def on_runner(method: str) -> Callable[..., Any]:
    """Return a function that calls a method of a new runner and waits for what it returns."""

    def called(*args: Any, **options: Any) -> Any:
        async def run() -> Any:
            made = attrgetter(method)(new_runner())(*args, **options)
            if inspect.isawaitable(made):
                return await made
            if hasattr(made, "__aenter__"):
                async with made as stream:
                    return [event async for event in stream]
            return [event async for event in made] if hasattr(made, "__aiter__") else made

        return asyncio.run(run())

    return called


OPTIONS = {"model": "nothing?", "model_settings": "object?", "agent_options": "nothing?"}
RUN_ARGS = {
    "input": "text",
    "values": "dict?",
    "thread": "text?",
    "start_at": "choice",
    "limits": "object?",
    "run_id": "text?",
    "owner": "text",
    **OPTIONS,
}
RESUME_ARGS = {"values": "nothing?", "limits": "object?", "accept_changes": "flag", **OPTIONS}
METHODS = tuple(
    Target(on_runner(name), valid, kinds, label=f"Runner.{name}")
    for name, valid, kinds in (
        ("run", {"input": "hi"}, RUN_ARGS),
        ("stream", {"input": "hi"}, RUN_ARGS),
        ("submit", {"input": "hi"}, {**RUN_ARGS, "not_before": "object?", "priority": "integer"}),
        ("resume", {"run_id": "x"}, {"run_id": "nothing", "answers": "nothing", **RESUME_ARGS}),
        ("stream_resume", {"run_id": "x"}, {"run_id": "nothing", "answers": "nothing", **RESUME_ARGS}),
        ("runs.drive", {"run_id": "x"}, {"run_id": "nothing", "accept_changes": "flag", "worker": "text?"}),
        ("runs.stream_drive", {"run_id": "x"}, {"run_id": "nothing", "accept_changes": "flag", "worker": "text?"}),
        (
            "runs.answer",
            {"run_id": "x", "answers": 1},
            {"run_id": "nothing", "answers": "nothing", "values": "nothing?"},
        ),
        ("runs.cancel", {"run_id": "x"}, {"run_id": "nothing", "when": "choice"}),
        ("runs.fork", {"run": "x"}, {"run": "nothing", "at": "nothing", "edit": "nothing", "run_id": "nothing"}),
        ("runs.replay", {"run": "x"}, {"run": "nothing"}),
        ("runs.events", {"run_id": "x"}, {"run_id": "nothing"}),
        ("runs.watch", {"run_id": "x"}, {"run_id": "nothing", "after": "nothing"}),
        ("runs.load", {}, {"events": "nothing"}),
        ("thread", {}, {"id": "text"}),
        ("clone", {}, {"model": "model?", "store": "store?", "limits": "object?", "history": "history"}),
    )
)


def failure_of(function: Callable[..., Any], /, *args: Any, **options: Any) -> str:
    """Describe how a call goes wrong in the wrong way; "" if it raises a BatonError with a message."""
    try:
        function(*args, **options)
    except BatonError as error:
        return "" if str(error).strip() else f"{type(error).__name__} without a message"
    except Exception as error:  # noqa: BLE001 - the failure is reported
        return f"{type(error).__name__}: {error}"
    return "accepted"


@pytest.mark.parametrize("target", [*CONSTRUCTORS, *METHODS], ids=lambda each: each.name)
def test_wrong_arguments_raise_an_error_of_this_kit(target: Target) -> None:
    failures = [
        f"{label}: {failure}"
        for label, options in target.cases()
        if (failure := failure_of(target.call, *target.first, **options))
    ]
    assert failures == []


def options_of(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Option]]:
    """List the options of a command and its subcommands that take a value."""
    found = [(path, each) for each in command.params if isinstance(each, click.Option) and not each.is_flag]
    subcommands: Mapping[str, click.Command] = command.commands if isinstance(command, click.Group) else {}
    return found + [option for name, each in subcommands.items() for option in options_of(each, (*path, name))]


def command_of(name: str) -> click.Command:
    """Load a command."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


WORDS = {
    "run": ("desk:agent", "hi"),
    "resume": ("run", "desk:agent"),
    "show": ("run",),
    "fork": ("run",),
    "rm": ("run",),
}
WRONG_TEXTS = (
    "",
    " ",
    "-1",
    "0",
    "x",
    "1e999",
    "nan",
    "=",
    "=x",
    "x=",
    "\x1b[2J",
    "/no/such/dir/x",
    "é" * 300,
    "a:b:c",
    "::",
)
# `demo` would run with any text.
CLI_OPTIONS = [option for name in COMMANDS if name != "demo" for option in options_of(command_of(name), (name,))]


@pytest.mark.parametrize(
    ("path", "option"), CLI_OPTIONS, ids=lambda each: getattr(each, "name", None) or " ".join(each)
)
def test_wrong_options_end_with_a_message(
    path: tuple[str, ...], option: click.Option, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = WORDS.get(path[-1], () if path[-1] in ("ls", "demo") else ("no_such_module:agent",))
    for text in WRONG_TEXTS:
        result = CliRunner().invoke(main, [*path, *words, option.opts[0], text], input="")
        assert result.exit_code in (0, 1, 2), (text, result.output, result.exception)
        assert "Traceback" not in result.output
        assert "use --debug to see the traceback" not in result.output, (text, result.output)
        assert result.exit_code == 0 or "rror: " in result.output, (text, result.output)


BODIES: dict[str, dict[str, Any]] = {
    "/runs": {"input": "hi", "values": {}, "thread": "t", "run_id": "r", "limits": {}, "wait": True},
    "/runs/x/resume": {"answers": {}, "values": {}},
}


@pytest.mark.parametrize("path", BODIES)
def test_wrong_bodies_are_refused_with_a_message(path: str) -> None:
    app = api_app(Agent("A", model=ScriptedModel(["hello"], cycle=True)))
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5000))
    with closing(client), client:
        bodies: list[Any] = [None, 5, "x", [], [1], True, {}, {"unknown": 1}]
        for name in BODIES[path]:
            wrong: tuple[Any, ...] = (
                5,
                2.5,
                True,
                [1],
                [[]],
                {"a": 1},
                {"role": "robot"},
                [{"role": "user"}],
                "\u0000",
            )
            bodies += [{**BODIES[path], name: value} for value in wrong]
        for body in bodies:
            response = client.post(path, json=body)
            assert response.status_code < 500, (body, response.text)
            if response.status_code >= 400:
                assert response.json()["error"]["message"], (body, response.text)
        for raw in (b"", b"{", b"\xff", b"[" * 100_000, b'{"input": "\\ud800"}', b"NaN"):
            response = client.post(path, content=raw, headers={"Content-Type": "application/json"})
            assert 400 <= response.status_code < 500, (raw[:20], response.text)


async def test_wrong_answers_to_an_approval_are_refused() -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    runner = Runner(Agent("A", tools=[pay], model=ScriptedModel([call("pay", amount=1), "done"], cycle=True)))
    stopped = await runner.run("hi")
    id = stopped.interrupts[0].id
    fields = ("approved", "reason", "arguments", "always", "foo")
    answers: list[Any] = [value for label, value in POOL.items() if label not in ("true", "none")]
    answers += [{"approved": False, name: value} for name in fields for value in (b"x", object(), 1j, POOL["deep"])]
    answers += [{"approved": False, "reason": "\ud800"}, {"approved": True, "arguments": {"amount": float("nan")}}]
    for answer in answers:
        for given in (answer, {id: answer}):
            with pytest.raises(BatonError) as caught:
                await runner.resume(stopped.run_id, given)
            assert str(caught.value)
    assert (await runner.resume(stopped.run_id, True)).output == "done"


def test_the_corpus_is_large() -> None:
    cases = sum(len([*target.cases()]) for target in (*CONSTRUCTORS, *METHODS))
    assert cases >= 2500
