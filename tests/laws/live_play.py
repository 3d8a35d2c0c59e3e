"""A live conversation in which anything may happen at any time, unattended; and what is left of it after a crash."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st
from tests.laws.clockless import rest
from tests.laws.live_stage import answer_to, live_runner, said_by
from tests.laws.live_strategies import LIVE, Desk, desks, replies
from tests.laws.plans import AgentPlan, Plan, ReplyPlan, TeamPlan, ToolPlan
from tests.laws.teams import Environment

from baton import BatonError, RunResult
from baton.errors import AnswerError
from baton.events import Event
from baton.messages import text_of
from baton.models import ModelRequest
from baton.realtime import PlaybackTracker, RealtimeRunner, RealtimeSession
from baton.realtime.protocol import AddItem, ConfigureSession, CreateResponse
from baton.stores import Store
from baton.testing import ScriptedRealtimeModel, ScriptedStream

ActKind: TypeAlias = Literal[
    "speaks",
    "begins",
    "ceases",
    "writes",
    "writes aside",
    "barges in",
    "interrupts",
    "a tool goes on",
    "a voice goes on",
    "wants another agent",
    "is cut",
    "is cut while told",
    "is refused",
    "time passes",
    "all rest",
    "answers",
]
_COMMANDS = (AddItem, ConfigureSession, CreateResponse)
RUN_ID = "r"


@dataclass(frozen=True, repr=False)
class Act(Plan):
    """Something that somebody does; `pick` chooses whom or what."""

    kind: ActKind
    pick: int = 0


@dataclass(frozen=True, repr=False)
class LivePlan(Plan):
    """A conversation: what the model says, the halves of which may be kept waiting, and what is done meanwhile."""

    desk: Desk
    replies: tuple[ReplyPlan, ...]
    held: tuple[bool, ...]
    acts: tuple[Act, ...]
    waits_for_tools: bool = False


_OFTEN: tuple[ActKind, ...] = ("speaks", "writes", "all rest", "all rest", "a tool goes on", "a voice goes on")
_RARELY: tuple[ActKind, ...] = (
    *("begins", "ceases", "writes aside", "barges in", "interrupts", "wants another agent", "time passes"),
    *("is cut", "is cut while told", "is refused", "answers", "answers"),
)
_acts = st.builds(Act, kind=st.sampled_from((*_OFTEN, *_OFTEN, *_RARELY)), pick=st.integers(0, 5))


def live_plans() -> st.SearchStrategy[LivePlan]:
    """Conversations of any kind."""
    return st.builds(
        LivePlan,
        desk=desks(kinds=LIVE).map(_with_tools_of_all_sorts),
        replies=st.lists(replies(), max_size=8).map(tuple),
        held=st.lists(st.booleans(), min_size=1, max_size=4).map(tuple),
        acts=st.lists(_acts, min_size=1, max_size=14).map(tuple),
        waits_for_tools=st.sampled_from([False, False, False, True]),
    )


def _with_tools_of_all_sorts(desk: Desk) -> Desk:
    """The desk with a second tool beside each that waits: one that must never run twice."""
    agents = [_with_once(agent) for agent in desk.team.agents]
    return Desk(TeamPlan(tuple(agents)), desk.declines, desk.multiple, desk.corrections)


def _with_once(plan: AgentPlan) -> AgentPlan:
    once = [ToolPlan(f"{each.name}_once", "gated", is_once=True) for each in plan.tools if each.kind == "gated"]
    edges = plan.edges
    return AgentPlan(
        plan.name,
        (*plan.tools, *once),
        plan.children,
        edges,
        has_exit=plan.has_exit,
        stays_from_parent=plan.stays_from_parent,
        is_parallel=plan.is_parallel,
    )


class LivePlay:
    """One conversation on one stage. `number` keeps the ids of its calls apart from those before a crash."""

    def __init__(
        self,
        plan: LivePlan,
        *,
        number: int = 0,
        replies: Sequence[ReplyPlan] | None = None,
        stage: Environment | None = None,
    ) -> None:
        self.plan = plan
        self.stage = stage or Environment()
        self.held: list[asyncio.Event] = []
        self.model = ScriptedRealtimeModel([self._say], cycle=True, hears=["something"] * 50)
        self._replies = list(plan.replies if replies is None else replies)
        self._number = number
        self._wishes: set[asyncio.Task[None]] = set()
        self._is_free = False

    async def hold(self, *, store: Store | None = None) -> RunResult[Any]:
        """The conversation from its beginning to its end."""
        session = self._runner(store).connect(run_id=RUN_ID, playback=_playback())
        with suppress(BatonError):
            async with session, _heard(session) as listening:
                for act in self.plan.acts:
                    with suppress(BatonError):
                        await self._act(session, act)
                await self._bring_to_rest(session, listening)
        if self._wishes:
            await asyncio.wait(self._wishes)
        return session.result

    async def take_up(self, events: Sequence[Event] = (), *, store: Store | None = None) -> RunResult[Any]:
        """The rest of a conversation, by a new runner that has only its log; the user says one more thing."""
        runner = self._runner(store)
        if store is None:
            runner.text_runner.load_log(events)
        session = runner.resume(RUN_ID, playback=_playback())
        with suppress(BatonError):
            async with session, _heard(session) as listening:
                await self._bring_to_rest(session, listening)
                with suppress(BatonError):
                    await session.send_text("are you still there?")
                await self._bring_to_rest(session, listening)
        return session.result

    async def take_up_by_the_clock(self, events: Sequence[Event], *, store: Store) -> RunResult[Any]:
        """The same in a loop like any other, with a store that has to be waited for."""
        runner = self._runner(store)
        await runner.text_runner.fork(events, run_id=RUN_ID)
        self.stage.has_open_gates = self._is_free = True
        session = runner.resume(RUN_ID)
        with suppress(BatonError):
            async with session, _heard(session), asyncio.timeout(30):
                await _until_settled(session)
                with suppress(BatonError):
                    await session.send_text("are you still there?")
                await _until_settled(session)
        await runner.close()
        return session.result

    def _runner(self, store: Store | None) -> RealtimeRunner[Any]:
        is_async = not self.plan.waits_for_tools
        return live_runner(self.plan.desk, self.stage, self.model, async_tool_calls=is_async, store=store)

    def complaints(self) -> list[str]:
        """What the provider has to complain of, but for results of calls of which it refused to be told again."""
        was_refused = any(act.kind == "is refused" for act in self.plan.acts) and len(self.model.connections) > 1
        return [each for each in self.model.complaints if not (was_refused and "the unknown call" in each)]

    def _say(self, request: ModelRequest) -> ScriptedStream:
        number = self._number = self._number + 1
        reply = self._replies.pop(0) if self._replies else ReplyPlan(f"that is all {number}")
        message = said_by(reply, self.plan.desk, request.agent, number=number)
        words = text_of(message.content).split(" ") if message.content else []
        middle = len(words) // 2
        pieces: list[Any] = [f"{word} " for word in words]
        if not self._is_free and self.plan.held[number % len(self.plan.held)]:
            self.held.append(asyncio.Event())
            pieces.insert(middle, self.held[-1])
        return ScriptedStream(*pieces, *message.tool_calls)

    async def _act(self, session: RealtimeSession, act: Act) -> None:
        connection, pick = self.model.connections[-1], act.pick
        match act.kind:
            case "speaks" if connection.is_open:
                connection.user_speaks(None if pick == 5 else f"spoken {pick}")
            case "begins" | "barges in" if connection.is_open:
                connection.user_begins()
            case "ceases" if connection.is_open:
                with suppress(BatonError):
                    connection.user_ceases(f"ceased {pick}")
            case "writes" | "writes aside":
                self._wish(session.send_text(f"written {pick}", respond=act.kind == "writes"))
            case "interrupts":
                await session.interrupt()
            case "a tool goes on" if self.stage.gates:
                gates = list(self.stage.gates.values())
                _let_go(gates[pick % len(gates)])
            case "a voice goes on" if self.held:
                self.held.pop(pick % len(self.held)).set()
            case "wants another agent":
                names = [agent.name for agent in self.plan.desk.team.agents]
                self._wish(session.handoff_to(names[pick % len(names)]))
            case "is cut":
                connection.cut()
            case "is cut while told":
                self.model.cut_at(_COMMANDS[pick % 3])
            case "is refused":
                self.model.refuse(AddItem, code="server_error", message="try again")
            case "time passes":
                await asyncio.sleep(0.3 * (pick + 1))
            case "all rest":
                await rest()
            case "answers" if session.interrupts:
                await _answer(session, pick)
            case _:
                pass

    async def _bring_to_rest(self, session: RealtimeSession, listening: "asyncio.Task[None]") -> None:
        """Let everything go on that waits, until nothing does or the conversation is over."""
        self.stage.has_open_gates = self._is_free = True
        for _ in range(40):
            await rest()
            for gate in list(self.stage.gates.values()):
                _let_go(gate)
            while self.held:
                self.held.pop().set()
            with suppress(BatonError):
                connection = self.model.connections[-1]
                if connection.is_open:
                    connection.user_ceases("at last")
            while session.interrupts:
                with suppress(BatonError):
                    await _answer(session, 0)
                    continue
                break
            await rest()
            await asyncio.sleep(10)
            if listening.done() or not (self.stage.gates or self.held or session.interrupts):
                await rest()
                return
        raise AssertionError("it does not come to rest")

    def _wish(self, work: Any) -> None:
        async def done() -> None:
            with suppress(BatonError):
                await work

        task = asyncio.create_task(done())
        self._wishes.add(task)


def _playback() -> PlaybackTracker:
    return PlaybackTracker(clock=asyncio.get_running_loop().time)


@asynccontextmanager
async def _heard(session: RealtimeSession) -> AsyncGenerator["asyncio.Task[None]"]:
    """Somebody listens, to the end; the task is done when the conversation is."""

    async def listen() -> None:
        with suppress(BatonError):
            async for _ in session:
                pass

    listening = asyncio.create_task(listen())
    try:
        yield listening
    finally:
        with suppress(BatonError):
            await session.close()
        await listening


async def _until_settled(session: RealtimeSession) -> None:
    """Answer whatever is asked until nothing more happens by itself."""
    await session.wait_until_idle()
    while session.interrupts:
        with suppress(BatonError):
            await _answer(session, 0)
            await session.wait_until_idle()
            continue
        return


async def _answer(session: RealtimeSession, pick: int) -> None:
    questions = session.log.open_interrupts()
    id = [*questions][pick % len(questions)]
    with suppress(AnswerError):
        await session.answer(id, answer_to(questions[id]))


def _let_go(gate: "asyncio.Future[None]") -> None:
    if not gate.done():
        gate.set_result(None)
