"""Random conversations over several runs of a thread, with a model that answers with a hash of the facts it reads."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from hypothesis import strategies as st
from tests.laws.providers import objections

from batonkit import Agent, Limits, ParallelAgent, RunContext, Runner, handoff, tool
from batonkit.agents import BaseAgent, Compaction, HistoryPolicy
from batonkit.handoffs import HandoffInputData
from batonkit.log import AgentResponded
from batonkit.messages import AssistantMessage, Message, ToolCall, text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse
from batonkit.stores import MemoryStore

_FACT = re.compile(r"fact:\w+")
NAMES = ("Front", "Back", "Far")
POLICIES = ("rewritten", "verbatim", "lineage", "answers", "none", "function", "filter", "keep")


@dataclass(frozen=True)
class Step:
    """One response: a tool call, a transfer, a call of an agent, of parallel agents, or an answer."""

    kind: str
    number: int


@dataclass(frozen=True)
class Conversation:
    """The policies of the agents, and the responses in each run."""

    policies: tuple[str, ...]
    runs: tuple[tuple[Step, ...], ...]


_steps = st.builds(
    Step, st.sampled_from(["look", "look", "look", "transfer", "delegate", "fan out"]), st.integers(0, 99)
)
conversations = st.builds(
    Conversation,
    st.tuples(*[st.sampled_from(POLICIES)] * len(NAMES)),
    st.lists(st.lists(_steps, max_size=8).map(tuple), min_size=1, max_size=4).map(tuple),
)
"""Conversations that are long enough to be compacted in the middle of a run and between runs."""


def facts_in(messages: Sequence[Message]) -> list[str]:
    """Return the facts in a prompt, in their order."""
    texts: list[str] = []
    for message in messages:
        texts.append(text_of(message.content))
        if isinstance(message, AssistantMessage):
            texts += [call.arguments for call in message.tool_calls]
    return _FACT.findall(" ".join(texts))


def with_shared_summaries(conversation: Conversation) -> Conversation:
    """Replace policies whose readers have summaries of their own."""
    own = {"lineage": "rewritten", "answers": "verbatim", "none": "filter"}
    return replace(conversation, policies=tuple([own.get(each, each) for each in conversation.policies]))


class FactModel:
    """Follows the plan of a run, and says in each answer which facts it has read."""

    name = "facts"

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.run = 0
        self.taken = 0
        self.invalid: list[str] = []
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        self.invalid += objections(request.messages)
        digest = f"fact:{request.agent}{crc32(' '.join(facts_in(request.messages)).encode())}"
        yield ModelResponse(self._decide(request, digest), None, "stop", self.name)

    def _decide(self, request: ModelRequest, digest: str) -> AssistantMessage:
        if request.agent not in NAMES:
            return AssistantMessage(digest)
        steps, taken = self.conversation.runs[self.run], self.taken
        self.taken += 1
        if taken >= len(steps):
            return AssistantMessage(digest)
        step, id = steps[taken], f"r{self.run}c{taken}"
        match step.kind:
            case "look":
                call = ToolCall(id, "look", f'{{"number":{step.number}}}')
            case "transfer":
                others = [name for name in NAMES if name != request.agent]
                call = ToolCall(id, f"transfer_to_{others[step.number % 2].lower()}", "{}")
            case "delegate":
                call = ToolCall(id, "Helper", f'{{"request":"{digest}"}}')
            case _:
                call = ToolCall(id, "Panel", f'{{"request":"{digest}"}}')
        return AssistantMessage(digest, (call,))


@tool
def look(number: int) -> str:
    """Look up a fact."""
    return f"fact:n{number}"


def _keep_all(entries: Sequence[Any]) -> list[Message]:
    return [entry.message for entry in entries]


def _unfiltered(data: HandoffInputData) -> HandoffInputData:
    return data


def _last_facts(data: HandoffInputData) -> HandoffInputData:
    """Keep the user's input and the turn that hands off."""
    return data.clone(pre_handoff_items=())


def runner_for(
    conversation: Conversation, model: FactModel, store: MemoryStore, compaction: Compaction | None
) -> Runner[Any, Any]:
    """Build the agents and their runner."""
    helper = Agent("Helper", tools=[look])
    panel = ParallelAgent("Panel", sub_agents=[Agent("Left"), Agent("Right")])
    agents: list[BaseAgent[Any, Any]] = []
    for name, policy in zip(NAMES, conversation.policies, strict=True):
        edges = [
            handoff(other, input_filter=_FILTERS.get(conversation.policies[NAMES.index(other)]))
            for other in NAMES
            if other != name
        ]
        history: HistoryPolicy | None = None
        if policy == "function":
            history = _keep_all
        elif policy not in _FILTERS:
            history = policy  # pyright: ignore[reportAssignmentType]
        tools = [look, helper.as_tool(name="Helper", history="rewritten"), panel.as_tool(name="Panel")]
        agents.append(Agent(name, tools=tools, handoffs=edges, history=history))
    limits = Limits(model_calls=None, transfers=None, idle_cycles=None)
    return Runner(agents[0], extra_agents=agents[1:], model=model, store=store, compaction=compaction, limits=limits)


_FILTERS = {"filter": _unfiltered, "keep": _last_facts}


class Thread:
    """A conversation that is executed; a new runner can continue it at any time."""

    def __init__(self, conversation: Conversation, compaction: Compaction | None) -> None:
        self.conversation = conversation
        self.model = FactModel(conversation)
        self.compaction = compaction
        self.store = MemoryStore()

    def new_runner(self) -> Runner[Any, Any]:
        """Return a runner as after a restart."""
        return runner_for(self.conversation, self.model, self.store, self.compaction)

    async def run_all(self) -> list[str]:
        """Execute all runs; return what the models said."""
        return [text for number in range(len(self.conversation.runs)) for text in await self.run(number)]

    async def run(self, number: int) -> list[str]:
        """Execute one run after the others before it; return what the models said."""
        self.model.run, self.model.taken = number, 0
        result = await self.new_runner().run(f"fact:u{number}", thread="t", run_id=f"r{number}")
        return [event.text for event in result.events if isinstance(event, AgentResponded)]

    async def fork(self, run_id: str, pick: int) -> tuple[int, list[str]]:
        """Fork a run at some event and run the fork to its end; return the place, and what all its models said."""
        runner = self.new_runner()
        events = await runner.runs.events(run_id)
        at = 1 + pick % (len(events) - 1)
        self.model.run = len(self.conversation.runs) - 1
        self.model.taken = sum(isinstance(event, AgentResponded) and event.agent in NAMES for event in events[:at])
        result = await runner.resume(await runner.runs.fork(run_id, at=at))
        return at, [event.text for event in result.events if isinstance(event, AgentResponded)]


def identity(*, seed: int) -> Callable[[RunContext[Any], Sequence[Message]], Sequence[Message]]:
    """Return a summarizer that summarizes nothing: the messages replace themselves. It fails for some agents."""

    def keep_all(ctx: RunContext[Any], messages: Sequence[Message]) -> Sequence[Message]:
        if seed and crc32(f"{ctx.agent}{seed}".encode()) % 2:
            raise RuntimeError("no summary")
        return messages

    return keep_all


compactions = st.builds(
    Compaction,
    at_tokens=st.integers(1, 12) | st.integers(13, 80),
    keep_last=st.integers(1, 3),
    summarizer=st.builds(identity, seed=st.integers(0, 5)),
)
"""Limits that random runs exceed at many points. Some agents cannot summarize, so that others read for longer."""
