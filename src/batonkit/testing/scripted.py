"""Scripted models: each response is a step of a script."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from .._checks import check_arguments
from ..errors import ModelError, SetupError, quote_names
from ..handoffs import TRANSFER_TOOL
from ..log import AgentResponded, Event, HistoryCompacted, StepCompleted, keys
from ..messages import AssistantMessage, Message, Part, Reasoning, Text, ToolCall, Usage, text_of
from ..models import Chunk, Model, ModelRequest, ModelResponse, PartChunk, ReasoningChunk, TextChunk, ToolCallChunk
from ..models.registry import MODEL_ENV_VAR, resolve_model
from .transcripts import format_call, format_response

Piece: TypeAlias = str | ToolCall | Part | Reasoning | Chunk | asyncio.Event | BaseException
"""A piece of a ScriptedStream: text, call, part, reasoning, chunk, event to wait for, or exception."""

WORD = re.compile(r"\S+\s*|\s+")


class ScriptedStream:
    """A response delivered in pieces.

    Args:
        pieces: Text, tool calls, parts, reasoning or chunks. An exception is raised at its place, and an
            `asyncio.Event` is awaited there.
        usage: The usage to report.
        stop_reason: The stop reason to report.
    """

    def __init__(self, *pieces: Piece, usage: Usage | None = None, stop_reason: str = "") -> None:
        for piece in pieces:
            if not isinstance(piece, Piece):  # pyright: ignore[reportUnnecessaryIsInstance]
                wanted = "text, ToolCalls, parts, Reasoning, chunks, an asyncio.Event or an exception"
                raise SetupError(f"{piece!r} cannot be a piece of a ScriptedStream; give {wanted}")
        self.pieces = pieces
        self.usage = usage
        self.stop_reason = stop_reason

    def __repr__(self) -> str:
        shown = [format_call(piece) if isinstance(piece, ToolCall) else repr(piece) for piece in self.pieces]
        return f"ScriptedStream({', '.join(shown)})"


Plain: TypeAlias = (
    str | ToolCall | Sequence[ToolCall] | AssistantMessage | ModelResponse | ScriptedStream | BaseException
)
Computed: TypeAlias = Callable[[ModelRequest], Plain | Awaitable[Plain]]
ScriptStep: TypeAlias = Plain | Computed
"""One response: text, calls, a message, a ModelResponse, a ScriptedStream, an exception, or a function."""
Script: TypeAlias = Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]]
"""The steps of all agents, or those of each agent by its name."""

Playable: TypeAlias = ModelResponse | ScriptedStream | BaseException
Operation: TypeAlias = Chunk | asyncio.Event | BaseException
"""One operation of playing a step: yield the chunk, wait for the event, or raise the exception."""


_RecordedCalls: TypeAlias = tuple[str, Sequence[ToolCall] | None, int]


def _recorded_model_calls(events: Sequence[Event], model: str) -> Iterator[_RecordedCalls]:
    """Yield the agent, the tool calls and the number of model calls of each recorded response.

    A recorded failure has None instead of tool calls. Summaries that another model wrote are left out.
    """
    whole = {event.key for event in events if isinstance(event, AgentResponded)}
    parts: dict[str, dict[str, list[_RecordedCalls]]] = {}
    for event in events:
        if isinstance(event, AgentResponded) and event.model:
            yield event.agent, event.message.tool_calls, event.model_calls
        elif isinstance(event, HistoryCompacted) and event.usage is not None and event.model == model:
            yield event.agent, (), event.usage.model_calls
        elif isinstance(event, StepCompleted) and (around := keys.next_of(event.key)) and around[0] not in whole:
            # It was recorded before its middleware returned.
            response, middleware = around
            calls = None
            if "response" in event.result:
                calls = msgspec.convert(event.result["response"]["message"], AssistantMessage).tool_calls
            found = parts.setdefault(response, {}).setdefault(middleware, [])
            found.append((event.agent, calls, event.result.get("model_calls", 0)))
    for by_middleware in parts.values():
        # What outer middleware has recorded includes the calls of inner middleware.
        yield from max(by_middleware.values(), key=lambda found: sum(calls for _, _, calls in found))


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Create a tool call for a script; the scripted model assigns its id.

    Args:
        name: The tool's name.
        arguments: The call's arguments.
    """
    return ToolCall("", name, msgspec.json.encode(arguments).decode())


def transfer_to(agent_name: str, /) -> ToolCall:
    """Create a call of the transfer tool that `sub_agents` share.

    Args:
        agent_name: The agent to transfer to.
    """
    return call(TRANSFER_TOOL, agent_name=agent_name)


def say(text: str, /, *calls: ToolCall, usage: Usage | None = None) -> ModelResponse:
    """Create a response of text and tool calls.

    Args:
        text: The text.
        calls: Tool calls made in the same response.
        usage: The usage to report.
    """
    return ModelResponse(AssistantMessage(text, calls), usage)


def normalize_step(step: Any, model_name: str) -> Playable | Computed:
    """Normalize a step. Raises SetupError if it is not a valid step."""
    match step:
        case str():
            message = AssistantMessage(step)
        case ToolCall():
            message = AssistantMessage(tool_calls=(step,))
        case AssistantMessage():
            message = step
        case ModelResponse():
            return step if step.model else replace(step, model=model_name)
        case ScriptedStream() | BaseException():
            return step
        case [*calls] if calls and all(isinstance(each, ToolCall) for each in calls):
            message = AssistantMessage(tool_calls=tuple(calls))
        case _ if callable(step) and not isinstance(step, type):
            return cast(Computed, step)
        case _:
            wanted = "text, calls, a message, a ModelResponse, a ScriptedStream, an exception or a function"
            raise SetupError(f"{step!r} cannot be a step of a ScriptedModel; give {wanted} of the request")
    return ModelResponse(message, model=model_name)


def operations(step: Playable, model_name: str, *, in_words: bool) -> Iterator[Operation]:
    """Yield the operations of playing a step, in order."""
    if isinstance(step, ScriptedStream):
        yield from _play(step.pieces)
        if not any(isinstance(piece, ModelResponse) for piece in step.pieces):
            yield ModelResponse(None, step.usage, step.stop_reason, model_name)
    elif in_words and isinstance(step, ModelResponse) and step.message is not None:
        yield from _play(_pieces_of(step, step.message))
    else:
        yield step


def describe_step(step: Playable | Computed) -> str:
    """Format a step for a failure message."""
    if isinstance(step, ModelResponse):
        return format_response(step.message or AssistantMessage())
    if isinstance(step, ScriptedStream):
        return repr(step)
    if isinstance(step, BaseException):
        return f"raise {step!r}"
    return f"computed by {getattr(step, '__name__', repr(step))}"


def _play(pieces: Iterable[Piece]) -> Iterator[Operation]:
    index = 0
    for piece in pieces:
        if isinstance(piece, str):
            yield TextChunk(piece)
        elif isinstance(piece, ToolCall):
            yield ToolCallChunk(index, piece.id, piece.name)
            yield ToolCallChunk(index, arguments=piece.arguments)
            index += 1
        elif isinstance(piece, Reasoning):
            yield ReasoningChunk(piece.text, piece)
        elif isinstance(piece, Part):
            yield PartChunk(piece)
        else:
            yield piece


def _pieces_of(response: ModelResponse, message: AssistantMessage) -> Iterator[Piece]:
    """Yield a response word by word."""
    yield from message.reasoning
    content = message.content
    for part in (Text(content),) if isinstance(content, str) else content:
        yield from WORD.findall(part.text) if isinstance(part, Text) else (part,)
    yield from message.tool_calls
    # Chunks cannot say where one of two neighbouring text parts ends, so content in parts is repeated as a whole.
    whole = None if isinstance(content, str) else message
    yield replace(response, message=whole)


_PLAYABLE = (ModelResponse, ScriptedStream, BaseException)
_MAX_QUOTE = 200


class ScriptedModel:
    """A model that plays a script, one step per request. It can serve several runs at once.

    Args:
        steps: The steps, or a mapping from agent name to that agent's steps. Prefer the mapping where agents run in
            parallel, because their requests may arrive in any order.
        name: The model's name.
        cycle: Start over when the steps are used up.
        stream: Stream responses word by word.
        record: Keep the requests in `requests`.
    """

    @check_arguments
    def __init__(
        self,
        steps: Script,
        *,
        name: str = "scripted",
        cycle: bool = False,
        stream: bool = False,
        record: bool = True,
    ) -> None:
        self.name = name
        self.stream = stream
        self.requests: list[ModelRequest] = []
        """The requests it received, in order."""
        self._record = record
        by_agent = cast(Mapping[str, Iterable[ScriptStep]], steps if isinstance(steps, Mapping) else {"": steps})
        self._scripts = {agent: _Script(own, name, agent=agent, cycle=cycle) for agent, own in by_agent.items()}
        """The scripts by agent; a script of all agents has the name "" instead."""

    @property
    def remaining(self) -> int:
        """The number of steps that have not been played."""
        return sum(script.remaining for script in self._scripts.values())

    def assert_done(self) -> None:
        """Raise AssertionError if steps were not played, and list them."""
        unplayed = [line for script in self._scripts.values() for line in script.unplayed()]
        if unplayed:
            steps = "1 step was" if len(unplayed) == 1 else f"{len(unplayed)} steps were"
            raise AssertionError("\n  ".join([f"{steps} not played by `{self.name}`:", *unplayed]))

    def fast_forward(self, events: Iterable[Event]) -> None:
        """Skip the steps whose responses are recorded, to resume a run with a new model.

        A failing step is skipped if a later response is recorded. A summary of the history is one of its steps if the
        log names this model for it.

        Args:
            events: The log of the run.
        """
        for script in self._scripts.values():
            script.reset()
        for agent, tool_calls, model_calls in _recorded_model_calls(list(events), self.name):
            script = self._script_of(agent)
            if script is None:
                continue
            # Those before the last were counted because they failed, or because middleware called the model again.
            script.skip_steps(model_calls if tool_calls is None else model_calls - 1)
            if model_calls and tool_calls is not None:
                script.skip(tool_calls)

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Play the next step.

        Args:
            request: The request; with a mapping of scripts, its agent selects the script.
        """
        if self._record:
            self.requests.append(request)
        script = self._script_of(request.agent)
        if script is None:
            known = quote_names(list(self._scripts))
            raise ModelError(
                f"`{self.name}` has no steps for the agent `{request.agent}`; it has steps for: {known}",
                model=self.name,
            )
        step = script.next_step(request)
        while not isinstance(step, _PLAYABLE):
            computed = step(request)
            step = normalize_step(await computed if isawaitable(computed) else computed, script.model_name)
        step = script.with_ids(step)
        if isinstance(step, ModelResponse) and not self.stream:
            yield step
            return
        for operation in operations(step, self.name, in_words=self.stream):
            if isinstance(operation, asyncio.Event):
                await operation.wait()
            elif isinstance(operation, BaseException):
                raise operation
            else:
                yield operation

    def _script_of(self, agent: str) -> "_Script | None":
        return self._scripts.get("") or self._scripts.get(agent)


class _Script:
    """The steps of one agent, or of all agents if `agent` is empty, and the position."""

    def __init__(self, steps: Iterable[ScriptStep], model_name: str, *, agent: str, cycle: bool) -> None:
        if isinstance(steps, str):
            raise SetupError(f"`{model_name}` needs a list of steps; write [{steps!r}] for a single one")
        self.model_name = model_name
        self._agent = agent
        self._cycle = cycle
        self._steps = [normalize_step(step, model_name) for step in steps]
        self._played = 0
        self._calls = 0

    def next_step(self, request: ModelRequest) -> Playable | Computed:
        position = self._played
        if position >= len(self._steps):
            if not self._cycle or not self._steps:
                raise ModelError(self._exhausted(request), model=self.model_name)
            position %= len(self._steps)
        self._played += 1
        return self._steps[position]

    @property
    def remaining(self) -> int:
        return max(0, len(self._steps) - self._played)

    def reset(self) -> None:
        self._played = self._calls = 0

    def skip_steps(self, count: int) -> None:
        """Skip so many steps, whether they fail or not."""
        self._played += max(0, count)

    def skip(self, calls: Iterable[ToolCall]) -> None:
        """Skip the step that made these calls, and failing steps before it."""
        steps = self._steps
        if any(not isinstance(step, BaseException) for step in steps):
            while isinstance(steps[self._played % len(steps)], BaseException):
                self._played += 1
        self._played += 1
        prefix = f"call_{self._agent}_" if self._agent else "call_"
        numbers = [call.id.removeprefix(prefix) for call in calls if call.id.startswith(prefix)]
        self._calls = max([self._calls, *[int(number) for number in numbers if number.isdecimal()]])

    def unplayed(self) -> list[str]:
        owner = f"`{self._agent}` " if self._agent else ""
        rest = enumerate(self._steps[self._played :], start=self._played + 1)
        return [f"{owner}step {number}: {describe_step(step)}" for number, step in rest]

    def with_ids(self, step: Playable) -> Playable:
        """Give an id to each call that has none."""
        if isinstance(step, ScriptedStream):
            pieces = [self._with_id(piece) if isinstance(piece, ToolCall) else piece for piece in step.pieces]
            return ScriptedStream(*pieces, usage=step.usage, stop_reason=step.stop_reason)
        if isinstance(step, ModelResponse) and step.message is not None:
            calls = step.message.tool_calls
            if "" in [call.id for call in calls]:
                named = tuple([self._with_id(call) for call in calls])
                return replace(step, message=replace(step.message, tool_calls=named))
        return step

    def _with_id(self, call: ToolCall) -> ToolCall:
        if call.id:
            return call
        # Counted per agent, so that ids do not depend on the order in which parallel agents ask.
        self._calls += 1
        owner = f"{self._agent}_" if self._agent else ""
        return ToolCall(f"call_{owner}{self._calls}", call.name, call.arguments)

    def _exhausted(self, request: ModelRequest) -> str:
        given = "1 step was" if len(self._steps) == 1 else f"{len(self._steps)} steps were"
        receiver = "it" if self._agent else "all agents together"
        return (
            f"`{self.model_name}` has no step left for the agent `{request.agent}`: {given} given to {receiver}, "
            f"and it was asked once more, {_describe_last(request.messages)}; add a step, or pass cycle=True"
        )


def _describe_last(messages: Sequence[Message]) -> str:
    if not messages:
        return "without any message"
    last = messages[-1]
    text = text_of(last.content)
    quote = text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
    return f"last message {type(last).__name__}({quote!r})"


SCRIPTED = "scripted"


class ScriptedOrRealModel(ScriptedModel):
    """A scripted model that gives way to the model named by BATON_MODEL."""

    def __init__(self, steps: Script, *, cycle: bool, stream: bool) -> None:
        super().__init__(steps, cycle=cycle, stream=stream)
        name = os.environ.get(MODEL_ENV_VAR, SCRIPTED)
        self.real: Model | None = None if name in ("", SCRIPTED) else resolve_model(name, wanted_by=MODEL_ENV_VAR)
        """The model that replaces the script, or None."""
        if self.real is not None:
            self.name = self.real.name

    @property
    def notice(self) -> str:
        """A line that says which model responds."""
        if self.real is None:
            return "scripted model: no language model is called"
        return f"model: {self.name}; it may behave differently from the script"

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Forward the request to the real model, or play the next step."""
        if self.real is None:
            return super().respond(request)
        self.requests.append(request)
        return aiter(self.real.respond(request))


def scripted_or_real(steps: Script, *, cycle: bool = False, stream: bool = False) -> ScriptedOrRealModel:
    """Return a scripted model, or the model that BATON_MODEL names.

    Args:
        steps: The script, as for `ScriptedModel`.
        cycle: Start over when the script is used up.
        stream: Stream the scripted responses word by word.
    """
    return ScriptedOrRealModel(steps, cycle=cycle, stream=stream)
