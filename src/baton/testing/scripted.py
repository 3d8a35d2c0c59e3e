"""A model that answers as a test tells it to."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import cast

from msgspec.structs import replace

from ..errors import ModelError, SetupError, quote_names
from ..events import AgentResponded, Event
from ..messages import Message, ToolCall, text_of
from ..models import Chunk, ModelRequest, ModelResponse
from .steps import Computed, Playable, ScriptedStream, ScriptStep, described, happenings, playable

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
