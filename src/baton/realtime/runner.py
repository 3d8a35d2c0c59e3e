"""The front desk for live conversations: compiles a team once, then opens conversations with it.

Which realtime model a string such as `openai:gpt-realtime` means.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from os import PathLike
from typing import Any, Generic, Self

from typing_extensions import TypeVar

from ..agents import BaseAgent, MultipleTransfers, RunHooks
from ..context import Limits
from ..errors import SetupError, quote_names
from ..handoffs import PromptLanguage
from ..messages import RunInput
from ..runner import Runner
from ..runner.arguments import StartAt
from ..runner.backends import new_id
from ..runner.observers import Observer
from ..runner.threads import Thread
from ..stores import Store
from .controller import SessionController
from .definition import RealtimeDefinition
from .protocol import RealtimeModel
from .session import RealtimeSession
from .settings import RealtimeSettings
from .speech import PlaybackTracker


def resolve_realtime_model(model: RealtimeModel | str, *, base_url: str | None = None) -> RealtimeModel:
    """The model itself, or the one that a string names, at `base_url` if it is not where its provider has it."""
    if not isinstance(model, str):
        if not isinstance(model, RealtimeModel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(
                f"{model!r} is no realtime model: that is an object with `name`, `check` and `connect`, "
                "or a string such as `openai:gpt-realtime`"
            )
        return model
    provider, _, name = model.partition(":")
    make = _PROVIDERS.get(provider)
    if make is None or not name:
        known = quote_names([f"{each}:…" for each in _PROVIDERS])
        raise SetupError(f"`{model}` does not name a realtime model; write it as `provider:name`, with one of: {known}")
    return make(name, base_url)


def _openai(name: str, base_url: str | None) -> RealtimeModel:
    from .openai import OpenAIRealtimeModel

    return OpenAIRealtimeModel(name, base_url=base_url)


_PROVIDERS: dict[str, Callable[[str, str | None], RealtimeModel]] = {"openai": _openai}

C = TypeVar("C", default=Any)

_LIMITS = Limits(model_calls=None, transfers=None)


class RealtimeRunner(Generic[C]):
    """Holds live conversations with one team: a `Runner` whose runs are conversations over an open connection.

    The log, the store, hooks, limits and readers are those of every run. One runner may hold many conversations.
    """

    def __init__(
        self,
        agent: BaseAgent[C, Any],
        *,
        model: RealtimeModel | str,
        settings: RealtimeSettings | None = None,
        limits: Limits | None = None,
        store: "Store | str | PathLike[str] | None" = None,
        lease_seconds: float = 30.0,
        multiple_transfers: MultipleTransfers = "first",
        hooks: RunHooks | None = None,
        max_corrections: int = 2,
        prompt_language: PromptLanguage = "en",
        extra_agents: Sequence[BaseAgent[Any, Any]] = (),
        observers: Sequence[Observer] = (),
        text_model: Any = None,
        async_tool_calls: bool = True,
        max_reconnects: int = 5,
        reconnect_delay: float = 0.25,
        guardrail_interval: int = 100,
    ) -> None:
        """`async_tool_calls=False` has the conversation wait for tools. `guardrail_step` is after how many characters
        of a transcript the guardrails are asked again. `text_model` is for text agents that are tools.
        """
        self._runner: Runner[C, str] = Runner(
            agent,
            model=text_model,
            limits=limits or _LIMITS,
            store=store,
            lease_seconds=lease_seconds,
            history="verbatim",
            multiple_transfers=multiple_transfers,
            hooks=hooks,
            max_corrections=max_corrections,
            prompt_language=prompt_language,
            extra_agents=extra_agents,
            observers=observers,
        )
        for seat in self._runner.team.members.values():
            if not isinstance(seat.agent, RealtimeDefinition):
                raise SetupError(
                    f"`{seat.agent.name}` is a {type(seat.agent).__name__} and cannot have the floor of a live "
                    "conversation; make it a RealtimeAgent, or give it to one as a tool: as_tool()"
                )
        self.model = resolve_realtime_model(model)
        self.manners = settings or RealtimeSettings()
        self._hooks = hooks
        self._async_tool_calls = async_tool_calls
        self._max_reconnects = max_reconnects
        self._reconnect_pause = reconnect_delay
        self._guardrail_step = guardrail_interval

    def connect(
        self,
        history: RunInput = (),
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        start_at: StartAt = "active",
        playback: PlaybackTracker | None = None,
    ) -> RealtimeSession:
        """A conversation, to be opened with `async with`. `history` is what was said before it.

        With a `thread` it goes on with what was said there, in writing or live, and begins with whoever had the floor.
        """
        run_id = run_id or new_id()
        talk = self._talk(run_id, playback)
        live = self._runner._for_live(talk).stream(
            history, context=context, values=values, limits=limits, run_id=run_id, thread=thread, start_at=start_at
        )
        return RealtimeSession(live, talk, team=self._runner.team, hooks=self._hooks)

    def resume(
        self,
        run_id: str,
        answers: Any = None,
        *,
        context: C | None = None,
        limits: Limits | None = None,
        accept_changes: bool = False,
        playback: PlaybackTracker | None = None,
    ) -> RealtimeSession:
        """Go on with a conversation that was cut off or left with an open question; what was done is not done again."""
        talk = self._talk(run_id, playback)
        live = self._runner._for_live(talk).stream_resume(
            run_id, answers, context=context, limits=limits, accept_changes=accept_changes
        )
        return RealtimeSession(live, talk, team=self._runner.team, hooks=self._hooks)

    @property
    def text_runner(self) -> "Runner[C, str]":
        """The runner below: for replaying conversations, reading their events, and their threads."""
        return self._runner

    def with_store(self, store: "Store | str | PathLike[str]") -> Self:
        """The same runner, with its conversations in this store."""
        twin = copy(self)
        twin._runner = self._runner.with_store(store)
        return twin

    def thread(self, id: str) -> Thread:
        """One conversation over several runs."""
        return self._runner.thread(id)

    async def close(self) -> None:
        """Close the store."""
        await self._runner.close()

    def _talk(self, name: str, playback: PlaybackTracker | None) -> SessionController:
        return SessionController(
            self.model,
            self.manners,
            name=name,
            playback=playback,
            max_reconnects=self._max_reconnects,
            reconnect_pause=self._reconnect_pause,
            waits_for_tools=not self._async_tool_calls,
            guardrail_step=self._guardrail_step,
        )
