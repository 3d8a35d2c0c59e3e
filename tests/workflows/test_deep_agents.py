"""Deep agents: todos, tasks for sub-agents and scratch files."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.workflows.pattern_parts import ask, fail, resume_in_new_runner

from batonkit import Agent, Limits, Runner, SequentialAgent, SetupError, deep_agent, supervisor, tool
from batonkit.log import ToolReturned
from batonkit.messages import text_of
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
