"""A model that answers as a test tells it to.

What a scripted model can be told to do when it is asked.

A script that steps aside for a real model when BATON_MODEL names one: for examples that anybody can run.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from ..errors import ModelError, SetupError, quote_names
from ..events import AgentResponded, Event
from ..handoffs import TRANSFER_TOOL
from ..messages import (
    AssistantMessage,
    Audio,
    Data,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    text_of,
)
from ..models import (
    Chunk,
    Model,
    ModelRequest,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    resolve_model,
)
from ..models.registry import MODEL_ENV_VAR
from .transcripts import shown_call, spoken

Piece: TypeAlias = str | ToolCall | Part | Reasoning | Chunk | asyncio.Event | BaseException
"""A piece of a Stream: text, a call, a part, a thought, a chunk as it is, something to wait for, or a failure."""

_PIECES = (
    *(str, ToolCall, Text, Image, Audio, File, Data, Reasoning),
    *(TextChunk, ReasoningChunk, ToolCallChunk, PartChunk, ModelResponse, asyncio.Event, BaseException),
)
_WORD = re.compile(r"\S+\s*|\s+")


class ScriptedStream:
    """An answer in pieces. An exception among them is raised there; an asyncio.Event is waited for there."""

    def __init__(self, *pieces: Piece, usage: Usage | None = None, stop_reason: str = "") -> None:
        for piece in pieces:
            if not isinstance(piece, _PIECES):  # pyright: ignore[reportUnnecessaryIsInstance]
                wanted = "text, ToolCalls, parts, Reasoning, chunks, an asyncio.Event or an exception"
                raise SetupError(f"{piece!r} cannot be a piece of a Stream; give {wanted}")
        self.pieces = pieces
        self.usage = usage
        self.stop_reason = stop_reason

    def __repr__(self) -> str:
        shown = [shown_call(piece) if isinstance(piece, ToolCall) else repr(piece) for piece in self.pieces]
        return f"Stream({', '.join(shown)})"


Plain: TypeAlias = (
    str | ToolCall | Sequence[ToolCall] | AssistantMessage | ModelResponse | ScriptedStream | BaseException
)
Computed: TypeAlias = Callable[[ModelRequest], Plain | Awaitable[Plain]]
ScriptStep: TypeAlias = Plain | Computed
"""One answer: text, calls, a message, a Response, a Stream, an exception to raise, or a function of the request."""

Playable: TypeAlias = ModelResponse | ScriptedStream | BaseException
Happening: TypeAlias = Chunk | asyncio.Event | BaseException
"""What playing a step comes to: give this chunk, wait for this, or raise this."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call of a tool; the model that plays it gives it an id."""
    return ToolCall("", name, msgspec.json.encode(arguments).decode())


def transfer_to(agent_name: str, /) -> ToolCall:
    """A call that asks for a transfer to a sub-agent or the parent, with the one tool for that."""
    return call(TRANSFER_TOOL, agent_name=agent_name)


def say(text: str, /, *calls: ToolCall, usage: Usage | None = None) -> ModelResponse:
    """An answer of text and calls together, with what it is said to have consumed."""
    return ModelResponse(AssistantMessage(text, calls), usage)


def playable(step: Any) -> Playable | Computed:
    """The step in the form it is played in; a SetupError if it is none."""
    match step:
        case str():
            return ModelResponse(AssistantMessage(step))
        case ToolCall():
            return ModelResponse(AssistantMessage(tool_calls=(step,)))
        case AssistantMessage():
            return ModelResponse(step)
        case ModelResponse() | ScriptedStream() | BaseException():
            return step
        case [*calls] if calls and all(isinstance(each, ToolCall) for each in calls):
            return ModelResponse(AssistantMessage(tool_calls=tuple(calls)))
        case _ if callable(step) and not isinstance(step, type):
            return cast(Computed, step)
        case _:
            wanted = "text, a ToolCall, a list of them, a message, a Response, a Stream, an exception or a function"
            raise SetupError(f"{step!r} cannot be a step of a ScriptedModel; give {wanted} of the request")


def happenings(step: Playable, model_name: str, *, in_words: bool) -> Iterator[Happening]:
    """What playing this step comes to, in order."""
    if isinstance(step, BaseException):
        yield step
    elif isinstance(step, ScriptedStream):
        yield from _of_stream(step, model_name)
    elif in_words and step.message is not None:
        yield from _of_message(step, step.message)
    else:
        yield step


def described(step: Playable | Computed) -> str:
    """A step as a failing test shows it."""
    if isinstance(step, ModelResponse):
        return spoken(step.message or AssistantMessage())
    if isinstance(step, ScriptedStream):
        return repr(step)
    if isinstance(step, BaseException):
        return f"raise {step!r}"
    return f"computed by {getattr(step, '__name__', repr(step))}"


def _of_stream(stream: ScriptedStream, model_name: str) -> Iterator[Happening]:
    index = 0
    for piece in stream.pieces:
        if isinstance(piece, ToolCall):
            yield from _of_call(piece, index)
            index += 1
        elif isinstance(piece, str):
            yield TextChunk(piece)
        elif isinstance(piece, Reasoning):
            yield ReasoningChunk(piece.text, piece)
        elif isinstance(piece, Text | Image | Audio | File | Data):
            yield PartChunk(piece)
        else:
            yield piece
    if not any(isinstance(piece, ModelResponse) for piece in stream.pieces):
        yield ModelResponse(None, stream.usage, stream.stop_reason, model_name)


def _of_message(response: ModelResponse, message: AssistantMessage) -> Iterator[Chunk]:
    for block in message.reasoning:
        yield ReasoningChunk(block.text, block)
    content = message.content
    for part in (Text(content),) if isinstance(content, str) else content:
        if isinstance(part, Text):
            yield from map(TextChunk, _WORD.findall(part.text))
        else:
            yield PartChunk(part)
    for index, each in enumerate(message.tool_calls):
        yield from _of_call(each, index)
    # Chunks cannot say where one of two neighbouring text parts ends, so content in parts is repeated as a whole.
    whole = None if isinstance(content, str) else message
    yield ModelResponse(whole, response.usage, response.stop_reason, response.model)


def _of_call(each: ToolCall, index: int) -> Iterator[ToolCallChunk]:
    yield ToolCallChunk(index, each.id, each.name)
    yield ToolCallChunk(index, arguments=each.arguments)


_PLAYABLE = (ModelResponse, ScriptedStream, BaseException)
_LONGEST_QUOTE = 200


class ScriptedModel:
    """Plays steps in order, one for each time it is asked; with a mapping, each agent has steps of its own.

    Prefer the mapping where agents work in parallel: who asks first does not matter then. `cycle` starts over at the
    end, `stream` gives answers word by word, and `record=False` keeps no requests. It may serve several runs at once.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        name: str = "scripted",
        cycle: bool = False,
        stream: bool = False,
        record: bool = True,
    ) -> None:
        self.name = name
        self.stream = stream
        self.requests: list[ModelRequest] = []
        """Every request it was asked to answer, in order."""
        self._record = record
        self._common: _Script | None = None
        self._by_agent: dict[str, _Script] = {}
        if isinstance(steps, Mapping):
            scripts = cast(Mapping[str, Iterable[ScriptStep]], steps)
            self._by_agent = {agent: _Script(own, name, agent=agent, cycle=cycle) for agent, own in scripts.items()}
        else:
            self._common = _Script(steps, name, agent="", cycle=cycle)

    @property
    def remaining(self) -> int:
        """How many steps have not been played yet."""
        return sum(script.remaining for script in self._scripts())

    def assert_done(self) -> None:
        """Fail if there are steps that were never played, and say which."""
        unplayed = [line for script in self._scripts() for line in script.unplayed()]
        if unplayed:
            steps = "1 step was" if len(unplayed) == 1 else f"{len(unplayed)} steps were"
            raise AssertionError("\n  ".join([f"{steps} never asked for from `{self.name}`:", *unplayed]))

    def go_on_after(self, events: Iterable[Event]) -> None:
        """Go to the place where it would be if it had given the answers that are in this log, and no others.

        For a run that is taken up with a new model. Steps that fail are past if an answer after them is in the log.
        """
        for script in self._scripts():
            script.start_over()
        for event in events:
            if isinstance(event, AgentResponded) and event.model:
                script = self._common or self._by_agent.get(event.agent)
                if script is not None:
                    script.pass_by(event.message.tool_calls)

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Play the next step."""
        if self._record:
            self.requests.append(request)
        script = self._common or self._script_of(request.agent)
        step = script.next_step(request)
        while not isinstance(step, _PLAYABLE):
            computed = step(request)
            step = script.prepared(await computed if isawaitable(computed) else computed)
        if isinstance(step, ModelResponse):
            step = script.with_ids(step)
            if not self.stream:
                yield step
                return
        elif isinstance(step, ScriptedStream):
            step = script.stream_with_ids(step)
        for happening in happenings(step, self.name, in_words=self.stream):
            if isinstance(happening, asyncio.Event):
                await happening.wait()
            elif isinstance(happening, BaseException):
                raise happening
            else:
                yield happening

    def _script_of(self, agent: str) -> "_Script":
        script = self._by_agent.get(agent)
        if script is None:
            known = quote_names(list(self._by_agent))
            raise ModelError(f"`{self.name}` has no steps for the agent `{agent}`, only for: {known}", model=self.name)
        return script

    def _scripts(self) -> "Iterable[_Script]":
        return self._by_agent.values() if self._common is None else (self._common,)


class _Script:
    """Steps that are played one after the other, and how far they have come; `agent` is "" if all agents share them."""

    def __init__(self, steps: Iterable[ScriptStep], model_name: str, *, agent: str, cycle: bool) -> None:
        if isinstance(steps, str):
            raise SetupError(f"`{model_name}` wants a list of steps; for a single one write [{steps!r}]")
        self._model_name = model_name
        self._agent = agent
        self._cycle = cycle
        self._steps = [self.prepared(step) for step in steps]
        self._played = 0
        self._calls = 0

    def prepared(self, step: ScriptStep) -> Playable | Computed:
        """The step in the form it is played in."""
        ready = playable(step)
        if isinstance(ready, ModelResponse) and not ready.model:
            return replace(ready, model=self._model_name)
        return ready

    def next_step(self, request: ModelRequest) -> Playable | Computed:
        """The step whose turn it is."""
        position = self._played
        if position >= len(self._steps):
            if not self._cycle or not self._steps:
                raise ModelError(self._exhausted(request), model=self._model_name)
            position %= len(self._steps)
        self._played += 1
        return self._steps[position]

    @property
    def remaining(self) -> int:
        """How many steps were never played."""
        return max(0, len(self._steps) - self._played)

    def start_over(self) -> None:
        """Go back to the first step."""
        self._played = self._calls = 0

    def pass_by(self, calls: Iterable[ToolCall]) -> None:
        """Go past the step that gave an answer with these calls, and past failures before it."""
        steps = self._steps
        if any(not isinstance(step, BaseException) for step in steps):
            while isinstance(steps[self._played % len(steps)], BaseException):
                self._played += 1
        self._played += 1
        made_up = f"call_{self._agent}_" if self._agent else "call_"
        numbers = [call.id.removeprefix(made_up) for call in calls if call.id.startswith(made_up)]
        self._calls = max([self._calls, *[int(number) for number in numbers if number.isdecimal()]])

    def unplayed(self) -> list[str]:
        """A line for each step that was never played."""
        owner = f"`{self._agent}` " if self._agent else ""
        rest = enumerate(self._steps[self._played :], start=self._played + 1)
        return [f"{owner}step {number}: {described(step)}" for number, step in rest]

    def with_ids(self, response: ModelResponse) -> ModelResponse:
        """The response with an id for every call that has none."""
        message = response.message
        if message is None or "" not in [call.id for call in message.tool_calls]:
            return response
        calls = tuple([self._with_id(call) for call in message.tool_calls])
        return replace(response, message=replace(message, tool_calls=calls))

    def stream_with_ids(self, stream: ScriptedStream) -> ScriptedStream:
        """The stream with an id for every call that has none."""
        pieces = [self._with_id(piece) if isinstance(piece, ToolCall) else piece for piece in stream.pieces]
        return ScriptedStream(*pieces, usage=stream.usage, stop_reason=stream.stop_reason)

    def _with_id(self, call: ToolCall) -> ToolCall:
        if call.id:
            return call
        # Each agent counts for itself, so that ids do not depend on who of two parallel agents is asked first.
        self._calls += 1
        owner = f"{self._agent}_" if self._agent else ""
        return ToolCall(f"call_{owner}{self._calls}", call.name, call.arguments)

    def _exhausted(self, request: ModelRequest) -> str:
        given = "1 step was" if len(self._steps) == 1 else f"{len(self._steps)} steps were"
        to_whom = "it" if self._agent else "all agents together"
        return (
            f"`{self._model_name}` has no step left for the agent `{request.agent}`: {given} given to {to_whom}, "
            f"and it is asked once more, {_asked_with(request.messages)}; add a step, or say cycle=True"
        )


def _asked_with(messages: Sequence[Message]) -> str:
    if not messages:
        return "without any message"
    last = messages[-1]
    text = text_of(last.content)
    quote = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
    return f"the last message being {type(last).__name__}({quote!r})"


SCRIPTED = "scripted"


class ScriptedOrRealModel(ScriptedModel):
    """A `ScriptedModel` that plays only if BATON_MODEL is not set, or says `scripted`; else the model it names answers.

    Requests are kept either way. With a real model a lesson may go another way than its script.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        cycle: bool = False,
        stream: bool = False,
    ) -> None:
        super().__init__(steps, cycle=cycle, stream=stream)
        wanted = os.environ.get(MODEL_ENV_VAR, SCRIPTED)
        self.real: Model | None = None if wanted in ("", SCRIPTED) else resolve_model(wanted, wanted_by=MODEL_ENV_VAR)
        """The model that answers in place of the script, if there is one."""
        if self.real is not None:
            self.name = self.real.name

    @property
    def notice(self) -> str:
        """A line that says who answers."""
        if self.real is None:
            return "scripted model: no language model is asked"
        return f"model: {self.name}; what it does may differ from the lesson's script"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Let the real model answer, or play the next step."""
        if self.real is None:
            chunks = super().respond(request)
        else:
            self.requests.append(request)
            chunks = self.real.respond(request)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()


def scripted_or_real(
    steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]], *, cycle: bool = False, stream: bool = False
) -> ScriptedOrRealModel:
    """Return a scripted model, or the model that BATON_MODEL names.

    Args:
        steps: The script, as for `ScriptedModel`.
        cycle: Start over when the script is used up.
        stream: Stream the scripted responses word by word.
    """
    return ScriptedOrRealModel(steps, cycle=cycle, stream=stream)
