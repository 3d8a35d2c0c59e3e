"""A recorded run as a test: the same model responses and answers, and the transfers and the output to expect."""

import json
from collections.abc import Iterator, Sequence
from keyword import iskeyword
from typing import Any, cast

from msgspec import UNSET, Struct, to_builtins

from ..errors import SetupError
from ..log import AgentResponded, Event, InterruptAnswered, RunFailed, RunResumed, RunSuspended, StepCompleted, keys
from ..log import events as types
from ..log.log import Log
from ..messages import AssistantMessage, ToolCall, UserMessage, text_of
from ..runs import output_from_events
from ..runs.opening import run_started_event

_REPEATABLE = (types.RunCompleted, RunSuspended, RunFailed)
_HEADER = '''"""Repeat a recorded run with the responses of its models. Its tools run for real."""
'''
_CONTEXT = "CONTEXT = None  # your context object, if your team reads ctx.context: a log does not have it"
_MODEL = """    # The name replaces the models of all agents, also of those with their own.
    register_model("recorded", lambda name: model)
    runner = Runner(team)"""


def write_test(events: Sequence[Event]) -> str:
    """Write a recorded run as a Python test that needs no model.

    The test gives each agent the responses of the run and each question its answer, and expects the same transfers and
    the same end.

    Args:
        events: The log of the run.

    Returns:
        The source; the import of the team and the context are to be filled in.

    Raises:
        SetupError: The run cannot be repeated: it has not stopped, was cancelled, or is a live conversation.
    """
    started = run_started_event(events)
    if any(isinstance(event, types.UserMessageAdded) and event.item_id for event in events):
        raise SetupError(f"run `{started.run_id}` is a live conversation, which a test cannot repeat")
    if not isinstance(events[-1], _REPEATABLE):
        works = "only a run that completed, failed or waits for an answer can be repeated"
        raise SetupError(f"run `{started.run_id}` was cancelled or is in progress; {works}")
    return _TestSource(events).write()


class _Resumption(Struct):
    """The answers and the message with which a suspended run was resumed."""

    answers: dict[str, str]
    """The source of the answers, by interrupt id."""
    values: dict[str, Any]
    message: UserMessage | None


class _TestSource:
    """The source of one test, and the names that it imports."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._imports: dict[str, set[str]] = {
            "batonkit": {"Runner"},
            "batonkit.models": {"register_model"},
            "batonkit.testing": {"ScriptedModel"},
        }

    def write(self) -> str:
        """Return the source."""
        body = "\n".join([*self._script(), _MODEL, *self._calls(), *self._assertions()])
        imports = ["import pytest"] if isinstance(self._events[-1], RunFailed) else []
        imports += [
            f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self._imports.items())
        ]
        agent = run_started_event(self._events).root_agent
        return "\n".join(
            [
                _HEADER,
                "import asyncio",
                "",
                *imports,
                "",
                f"from desk import team  # your agent {agent}",
                "",
                _CONTEXT,
                "",
                "",
                "def test_the_recorded_run() -> None:",
                "    asyncio.run(repeat_the_run())",
                "",
                "",
                "async def repeat_the_run() -> None:",
                body,
                "",
            ]
        )

    def _import(self, module: str, name: str) -> str:
        self._imports.setdefault(module, set()).add(name)
        return name

    def _script(self) -> Iterator[str]:
        """Yield the lines that create the scripted model."""
        responses: dict[str, list[str]] = {}
        for event in self._events:
            if isinstance(event, AgentResponded) and event.model:
                responses.setdefault(event.agent, []).append(self._response(event.message))
        yield "    model = ScriptedModel("
        yield "        {"
        for agent, steps in responses.items():
            yield f"            {_literal(agent)}: ["
            yield from [f"                {step}," for step in steps]
            yield "            ],"
        yield "        }"
        yield "    )"

    def _response(self, message: AssistantMessage) -> str:
        text = text_of(message.content)
        calls = [self._call(call) for call in message.tool_calls]
        if not calls:
            return _literal(text)
        if len(calls) == 1 and not text:
            return calls[0]
        return f"{self._import('batonkit.testing', 'say')}({', '.join([_literal(text), *calls])})"

    def _call(self, call: ToolCall) -> str:
        try:
            arguments: Any = json.loads(call.arguments)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            made = self._import("batonkit.messages", "ToolCall")
            return f'{made}("", {_literal(call.name)}, {_literal(call.arguments)})'
        named = cast("dict[str, Any]", arguments)
        if all(name.isidentifier() and not iskeyword(name) for name in named):
            given = [f"{name}={_literal(value)}" for name, value in named.items()]
        else:
            given = [f"**{_literal(named)}"]
        return f"{self._import('batonkit.testing', 'call')}({', '.join([_literal(call.name), *given])})"

    def _calls(self) -> Iterator[str]:
        """Yield the lines that run the team and answer its questions."""
        started = run_started_event(self._events)
        texts = [message.content for message in started.input if isinstance(message, UserMessage)]
        is_text = len(texts) == len(started.input) == 1 and isinstance(texts[0], str)
        input = _literal(texts[0] if is_text else to_builtins(started.input))
        values = f", values={_literal(started.values)}" if started.values else ""
        statements = [f'await runner.run({input}, model="recorded:run", context=CONTEXT{values})']
        for resumption in self._resumptions():
            more = f", values={_literal(resumption.values)}" if resumption.values else ""
            if resumption.message is not None:
                more += f", message={_literal(text_of(resumption.message.content))}"
            answers = ", ".join([f"{_literal(id)}: {answer}" for id, answer in resumption.answers.items()])
            given = f"{{{answers}}}" if answers else "None"
            statements.append(f"await runner.resume(result.run_id, {given}, context=CONTEXT{more})")
        for statement in statements[:-1]:
            yield f"    result = {statement}"
            yield '    assert result.status == "suspended"'
        if isinstance(self._events[-1], RunFailed):
            yield "    with pytest.raises(Exception) as raised:"
            yield f"        {statements[-1]}"
        else:
            yield f"    result = {statements[-1]}"

    def _resumptions(self) -> Iterator[_Resumption]:
        """Yield what a suspended run was resumed with.

        A failed or cancelled run was resumed where it stopped, where the test does not stop.
        """
        is_suspended = False
        resumption: _Resumption | None = None
        for event in self._events:
            if isinstance(event, RunSuspended):
                is_suspended = True
            elif isinstance(event, RunResumed) and is_suspended:
                is_suspended = False
                if resumption is not None:
                    yield resumption
                resumption = _Resumption({}, {}, event.message)
            elif isinstance(event, InterruptAnswered) and resumption is not None:
                resumption.answers[event.interrupt_id] = _literal(event.answer)
                resumption.values |= event.values
            elif isinstance(event, StepCompleted) and event.name == keys.DISMISSED and resumption is not None:
                for id in self._questions_of(keys.parent(event.key)):
                    dismiss = self._import("batonkit.runs", "Dismiss")
                    resumption.answers[id] = f"{dismiss}({_literal(event.result)})"
        if resumption is not None:
            yield resumption

    def _questions_of(self, call: str) -> list[str]:
        """Return the ids of the questions that a tool call asked."""
        raised = [event for event in self._events if isinstance(event, types.InterruptRaised)]
        return [event.key for event in raised if call in keys.calls_around(event.key)]

    def _assertions(self) -> Iterator[str]:
        """Yield the lines that compare the end of the test with that of the run."""
        last = self._events[-1]
        if isinstance(last, RunFailed):
            yield f"    assert type(raised.value).__name__ == {_literal(last.error_type)}"
            return
        yield "    model.assert_done()"
        transfers = [event for event in self._events if isinstance(event, types.ControlTransferred)]
        targets = [event.target for event in transfers if not keys.is_nested(event.origin.id)]
        # The transfers of parallel branches have no order.
        outermost = ' and "/" not in event.origin.id' if len(targets) < len(transfers) else ""
        kind = self._import("batonkit.log", "ControlTransferred")
        found = f"[event.target for event in result.events if isinstance(event, {kind}){outermost}]"
        yield f"    assert {found} == {_literal(targets)}"
        if isinstance(last, RunSuspended):
            open_ids = [*Log(self._events).open_interrupts()]
            yield f"    assert [interrupt.id for interrupt in result.interrupts] == {_literal(open_ids)}"
        elif isinstance(last, types.RunCompleted):
            yield from self._output(last)

    def _output(self, completed: types.RunCompleted) -> Iterator[str]:
        """Expect the output if it is text, else the text that says it."""
        if not completed.said:
            return
        if completed.output is UNSET:
            yield f"    assert result.output == {_literal(output_from_events(self._events))}"
        else:
            said = next(event for event in self._events if event.key == completed.said[-1])
            assert isinstance(said, AgentResponded)
            text = f"{self._import('batonkit.messages', 'text_of')}(result.messages[-1].content)"
            yield f"    assert {text} == {_literal(text_of(said.message.content))}"


def _literal(value: Any) -> str:
    """Return JSON data as Python source."""
    if isinstance(value, str):
        # The escapes of JSON are valid in Python.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join([_literal(each) for each in cast('Sequence[Any]', value)])}]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return f"{{{', '.join([f'{_literal(name)}: {_literal(each)}' for name, each in items])}}}"
    return repr(value)
