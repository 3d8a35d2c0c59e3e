"""Deep agents: todos, tasks for sub-agents and scratch files."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.workflows.pattern_parts import ask, fail, resume_in_new_runner

from batonkit import (
    Agent,
    AgentHooks,
    Limits,
    Middleware,
    ModelSettings,
    RunContext,
    Runner,
    SequentialAgent,
    SetupError,
    ToolResult,
    deep_agent,
    guardrail,
    supervisor,
    tool,
)
from batonkit.agents import Compaction
from batonkit.log import ToolReturned
from batonkit.messages import ToolCall, text_of
from batonkit.serve.frontend_tools import TOOLS, frontend_tool, with_frontend_tools
from batonkit.testing import ScriptedModel, call, transcript
from batonkit.workflows import FILE_KEY, GENERAL_PURPOSE, TODOS_KEY, scratch_file_tools


@tool
async def search(what: str) -> str:
    """Search for something."""
    return f"found {what}"


def tool_results(events: Any, agent: str) -> list[str]:
    """Return the texts of the tool results of one agent."""
    return [text_of(event.content) for event in events if isinstance(event, ToolReturned) and event.agent == agent]


async def test_a_deep_agent_has_tools_for_todos_tasks_and_files() -> None:
    writer = Agent("Writer", description="Writes well.")
    model = ScriptedModel(["Nothing to do."])
    team = deep_agent(model, [search], [writer], name="Deep", instructions="You write reports.", files=True)
    await Runner(team).run("go")
    request = model.requests[0]
    assert [spec.name for spec in request.tools] == [
        "write_todos", "task", "search", "ls", "read_file", "write_file", "edit_file",
    ]  # fmt: skip
    task = request.tools[1]
    assert task.parameters["properties"]["subagent"]["enum"] == ["Writer", GENERAL_PURPOSE]
    assert "- Writer: Writes well." in task.description
    assert request.instructions.startswith("You write reports.\n\n")
    assert "scratch space" in request.instructions


async def test_todos_are_stored_in_the_values_and_validated() -> None:
    model = ScriptedModel(
        [
            call("write_todos", todos=[{"content": "look", "status": "in_progress"}, {"content": "write"}]),
            call("write_todos", todos=[{"content": "look", "status": "lost"}]),
            "Later.",
        ]
    )
    result = await Runner(deep_agent(model, name="Deep")).run("go")
    assert result.values == {
        f"{TODOS_KEY}:Deep": [{"content": "look", "status": "in_progress"}, {"content": "write", "status": "pending"}]
    }
    accepted, refused = tool_results(result.events, "Deep")
    assert accepted == "[>] look\n[ ] write"
    assert "`todos[0].status`" in refused


async def test_a_sub_agent_reads_only_its_task() -> None:
    model = ScriptedModel(
        {
            "Deep": [
                [
                    call("task", subagent="Writer", description="Write about 137 m."),
                    call("task", subagent=GENERAL_PURPOSE, description="Find the bridge."),
                ],
                "Here is the report.",
            ],
            "Writer": ["A bridge of 137 m."],
            "Deep.general_purpose": [call("search", what="bridge"), "It is in Bern."],
        }
    )
    team = deep_agent(None, [search], [Agent("Writer", description="Writes.")], name="Deep")
    result = await Runner(team, model=model).run("A secret question")
    assert result.output == "Here is the report."
    assert tool_results(result.events, "Deep") == ["A bridge of 137 m.", "It is in Bern."]
    texts = {request.agent: [text_of(each.content) for each in request.messages] for request in model.requests[1:3]}
    assert texts == {"Writer": ["Write about 137 m."], "Deep.general_purpose": ["Find the bridge."]}
    # The general-purpose agent has the tools but cannot start tasks.
    general = next(request for request in model.requests if request.agent == "Deep.general_purpose")
    assert [spec.name for spec in general.tools] == ["search"]


async def test_a_failed_or_invalid_task_is_returned_to_the_model_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(
        {
            "Deep": [
                call("task", subagent="Unknown", description="?"),
                call("task", worker="Writer"),
                call("task", subagent="Writer", description="Fail."),
                "I gave up.",
            ],
            "Writer": [call("fail")],
        }
    )
    team = deep_agent(None, (), [Agent("Writer", description="Writes.", tools=[fail])], name="Deep")
    result = await Runner(team, model=model).run("go")
    assert tool_results(result.events, "Deep") == snapshot(
        [
            "There is no sub-agent `Unknown`; there are: `Writer`, `general-purpose`.",
            "The arguments of `task` do not fit: Object missing required field `subagent`.",
            "[Writer] failed: ToolFailedError: tool `fail` failed: OSError: disk full",
        ]
    )


async def test_task_limits_apply_to_each_task() -> None:
    model = ScriptedModel(
        {
            "Deep": [call("task", subagent=GENERAL_PURPOSE, description="Search on."), "Enough."],
            "Deep.general_purpose": [call("search", what="more")] * 9,
        }
    )
    team = deep_agent(None, [search], name="Deep", task_limits=Limits(model_calls=3))
    result = await Runner(team, model=model).run("go")
    assert "limit of 3 model_calls" in tool_results(result.events, "Deep")[0]
    assert result.output == "Enough."


async def test_files_are_values_of_the_run_and_shared_with_sub_agents() -> None:
    model = ScriptedModel(
        {
            "Deep": [
                call("ls"),
                call("write_file", path="/notes/rome.md", content="one\ntwo\nthree"),
                call("task", subagent=GENERAL_PURPOSE, description="Edit notes/rome.md."),
                [call("ls"), call("read_file", path="./notes/rome.md", offset=1, limit=1)],
                "Done.",
            ],
            "Deep.general_purpose": [
                call("edit_file", path="notes/rome.md", old="two", new="2"),
                "Edited.",
            ],
        }
    )
    result = await Runner(deep_agent(None, name="Deep", files=True), model=model).run("go")
    assert tool_results(result.events, "Deep") == snapshot(
        [
            "There are no files yet.",
            "wrote `notes/rome.md`, 13 characters",
            "Edited.",
            "notes/rome.md (11)",
            """\
2
(1 more lines)\
""",
        ]
    )
    assert result.values == {f"{FILE_KEY}:notes/rome.md": "one\n2\nthree"}


async def test_file_errors_are_returned_to_the_model() -> None:
    model = ScriptedModel(
        [
            call("read_file", path="a.md"),
            call("write_file", path="a.md", content="x x"),
            call("edit_file", path="a.md", old="y", new="z"),
            call("edit_file", path="a.md", old="x", new="z"),
            call("edit_file", path="a.md", old="x", new="z", replace_all=True),
            call("edit_file", path="a.md", old="", new="z"),
            call("write_file", path="../a.md", content=""),
            call("read_file", path="a.md", offset=7),
            call("write_file", path="empty.md", content=""),
            call("read_file", path="empty.md"),
            "Done.",
        ]
    )
    result = await Runner(Agent("Clerk", tools=scratch_file_tools()), model=model).run("go")
    assert tool_results(result.events, "Clerk") == snapshot(
        [
            "there is no file `a.md`; the files are: nothing",
            "wrote `a.md`, 3 characters",
            "`a.md` does not contain that text; read it first",
            "`a.md` contains that text 2 times; give a longer text, or set replace_all",
            "replaced it 2 times in `a.md`",
            "`a.md` does not contain that text; read it first",
            "`../a.md` is not a valid path; write it like `notes.md` or `notes/rome.md`",
            "(`a.md` has 1 lines; there is nothing after line 7)",
            "wrote `empty.md`, 0 characters",
            "(empty)",
        ]
    )


async def test_an_interrupt_inside_a_task_can_be_answered_in_a_new_runner() -> None:
    # Files written before the interrupt are kept, and the other task does not run again.
    script: dict[str, list[Any]] = {
        "Deep": [
            [
                call("task", subagent="Asker", description="Ask."),
                call("task", subagent="Writer", description="Write."),
            ]
        ],
        "Asker": [call("write_file", path="q.md", content="When?"), call("ask", question="When?")],
        "Writer": [call("write_file", path="w.md", content="text"), "written"],
    }

    def make() -> Runner[Any, Any]:
        asker = Agent("Asker", description="Asks.", tools=[ask, *scratch_file_tools()])
        writer = Agent("Writer", description="Writes.", tools=scratch_file_tools())
        return Runner(deep_agent(None, (), [asker, writer], name="Deep", files=True), model=ScriptedModel(script))

    suspended = await make().run("go")
    (question,) = suspended.interrupts
    assert question.path == ("Deep", "Asker")
    script.update(Deep=["All done."], Asker=["at nine"], Writer=[])
    result = await resume_in_new_runner(make, suspended, {question.id: "nine"})
    assert result.output == "All done."
    assert tool_results(result.events, "Deep") == ["written", "at nine"]
    assert result.values == {f"{FILE_KEY}:q.md": "When?", f"{FILE_KEY}:w.md": "text"}


async def test_sub_agents_can_be_deep_agents_workflows_and_supervisors() -> None:
    # Each has its own names.
    inner = deep_agent(None, name="Inner", description="Digs deeper.")
    sequence = SequentialAgent("Line", description="One after the other.", sub_agents=[Agent("First"), Agent("Second")])
    boss = supervisor(Agent("Boss", description="Decides."), sub_agents=[Agent("Hand", description="Works.")])
    model = ScriptedModel(
        {
            "Deep": [
                call("task", subagent="Inner", description="Dig."),
                call("task", subagent="Line", description="Go."),
                call("task", subagent="Boss", description="Have it done."),
                "Done.",
            ],
            "Inner": [call("task", subagent=GENERAL_PURPOSE, description="Dig more."), "dug"],
            "Inner.general_purpose": ["deep enough"],
            "First": ["one"],
            "Second": ["two"],
            "Boss": [call("transfer_to_hand"), "it is done"],
            "Hand": ["done"],
        }
    )
    result = await Runner(deep_agent(None, (), [inner, sequence, boss], name="Deep"), model=model).run("go")
    assert tool_results(result.events, "Deep") == ["dug", "two", "it is done"]
    assert "Inner.general_purpose started" in transcript(result.events)


def test_invalid_sub_agents_are_refused_at_construction() -> None:
    with pytest.raises(SetupError, match="sub-agents of the same name"):
        deep_agent(None, (), [Agent("A"), Agent("A")])
    with pytest.raises(SetupError, match="no sub-agents for tasks"):
        deep_agent(None, general_purpose=False)


def test_a_clone_keeps_the_sub_agents() -> None:
    team = deep_agent(None, name="Deep").clone(exit_tool=True)
    assert [inner.name for inner in team.inner_agents()] == ["Deep.general_purpose"]


HELPER = "Deep.general_purpose"


class _Guard(Middleware):
    """Refuses every tool call but `task`."""

    async def tool_call(self, ctx: Any, call: ToolCall, next: Any) -> ToolResult:
        return await next(call) if call.name == "task" else ToolResult("refused", is_error=True)


def _delegates(then: Any) -> ScriptedModel:
    return ScriptedModel({"Deep": [call("task", subagent=GENERAL_PURPOSE, description="Look."), "Done."], HELPER: then})


async def test_the_general_purpose_agent_has_the_middleware_given_to_clone() -> None:
    done: list[str] = []

    @tool
    async def shell(command: str) -> str:
        """Run a command."""
        done.append(command)
        return "ran"

    model = _delegates([call("shell", command="rm"), "tried"])
    deep = deep_agent(model, [shell], name="Deep").clone(middleware=[_Guard()])
    result = await Runner(deep).run("go")
    assert result.output == "Done."
    assert tool_results(result.events, HELPER) == ["refused"]
    assert not done


async def test_the_general_purpose_agent_is_made_of_the_final_options() -> None:
    other = _delegates(["found"])
    settings = ModelSettings(temperature=0.5)
    hooks: AgentHooks = AgentHooks()
    compaction = Compaction(at_tokens=100_000)

    @guardrail
    def check(ctx: RunContext, value: Any) -> bool:
        return True

    first = deep_agent("test:none", [search], name="Deep", files=True)
    deep = first.clone(
        model=other, model_settings=settings, hooks=hooks, compaction=compaction, input_guardrails=[check],
        output_guardrails=[check], max_turns=7, on_max_turns="error", concurrent_tools=False, max_parallel_tools=2,
    )  # fmt: skip
    (helper,) = deep.inner_agents()
    assert isinstance(helper, Agent)
    for option in (
        "model", "model_settings", "hooks", "compaction", "input_guardrails", "output_guardrails", "max_turns",
        "on_max_turns", "concurrent_tools", "max_parallel_tools",
    ):  # fmt: skip
        assert getattr(helper, option) == getattr(deep, option), option
    assert (await Runner(deep).run("go")).output == "Done."
    assert [request.settings.temperature for request in other.requests] == [0.5, 0.5, 0.5]
    # The agent that was cloned is as it was.
    assert first.inner_agents()[0] is not helper
    assert getattr(first.inner_agents()[0], "model", None) == "test:none"


async def test_the_general_purpose_agent_has_the_final_tools_and_name() -> None:
    deep = deep_agent(None, [search], name="Deep", files=True)
    fewer = deep.clone(name="Less", tools=[each for each in deep.tools if each is not search])
    (helper,) = fewer.inner_agents()
    assert helper.name == "Less.general_purpose"
    assert [spec.name for spec in helper._tool_specs()] == ["ls", "read_file", "write_file", "edit_file"]
    with_both = Agent("Router", handoffs=[deep, fewer], model=ScriptedModel(["hello"]))
    assert (await Runner(with_both).run("hi")).output == "hello"


async def test_checks_of_a_typed_answer_are_not_those_of_the_general_purpose_agent() -> None:
    @guardrail
    def positive(ctx: RunContext, value: int) -> bool:
        return value > 0

    model = ScriptedModel(
        {"Deep": [call("task", subagent=GENERAL_PURPOSE, description="Look."), "4"], HELPER: ["it is four"]}
    )
    deep = deep_agent(model, name="Deep").clone(output_guardrails=[positive], output_type=int)
    result = await Runner(deep).run("go")
    assert result.output == 4


async def test_a_run_with_tools_of_the_client_keeps_the_general_purpose_agent() -> None:
    model = _delegates(["found"])
    deep = with_frontend_tools(deep_agent(model, [search], name="Deep"))
    tools = [frontend_tool("show", "Shows it.", {})]
    result = await Runner(deep).run("go", values={TOOLS: tools})
    assert result.output == "Done."
    assert "show" in [spec.name for spec in model.requests[0].tools]
    assert "show" not in [spec.name for spec in model.requests[1].tools]
