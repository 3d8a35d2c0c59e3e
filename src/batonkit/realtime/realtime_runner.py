"""The runner of realtime sessions, and the lookup of realtime models by name."""

from collections.abc import Mapping, Sequence
from copy import copy
from os import PathLike
from typing import Any, Generic, Self

from typing_extensions import TypeVar, Unpack

from .._checks import check_arguments, check_positive
from .._wording import show, type_of
from ..agents import BaseAgent, RunHooks
from ..agents.middleware import Middleware, overrides
from ..context import Limits
from ..errors import SetupError, quote_names
from ..handoffs import PromptLanguage
from ..messages import RunInput
from ..models import Prices
from ..runs import HandoffRules, Runner
from ..runs.observers import Observer
from ..runs.opening import new_id
from ..runs.run_args import ResumeArgs, RunArgs, check_resume_args, check_run_args
from ..runs.threads.thread import Thread
from ..stores import Store
from .agent_definition import RealtimeDefinition
from .controller import SessionController
from .openai import OpenAIRealtimeModel
from .protocol import RealtimeModel
from .session import RealtimeSession
from .speech import PlaybackTracker
from .voice_settings import RealtimeSettings, SessionOptions


def resolve_realtime_model(model: RealtimeModel | str, *, base_url: str | None = None) -> RealtimeModel:
    """Return a realtime model for a name such as `openai:gpt-realtime`.

    Args:
        model: A model, which is returned as it is, or `provider:name`.
        base_url: Address of the provider's API, if not its own.

    Raises:
        SetupError: It is neither a realtime model nor the name of one.
    """
    if not isinstance(model, str):
        if not isinstance(model, RealtimeModel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(
                f"{show(model)} is not a realtime model; pass an object with `name`, `check` and `connect`, "
                "or a string such as `openai:gpt-realtime`"
            )
        return model
    provider, _, name = model.partition(":")
    if provider not in _PROVIDERS or not name:
        known = quote_names([f"{each}:…" for each in _PROVIDERS])
        raise SetupError(f"`{model}` does not name a realtime model; write it as `provider:name`, with one of: {known}")
    return _PROVIDERS[provider](name, base_url=base_url)


C = TypeVar("C", default=Any)
_PROVIDERS = {"openai": OpenAIRealtimeModel}
_LIMITS = Limits(model_calls=None, transfers=None)


class RealtimeRunner(Generic[C]):
    """Runs a team in realtime sessions.

    Each session is a run: log, store, hooks, limits and observers work as in every run. Many may be open at once.
    """

    @check_arguments
    def __init__(
        self,
        agent: BaseAgent[C, Any],
        *,
        model: RealtimeModel | str,
        settings: RealtimeSettings | None = None,
        text_model: Any = None,
        store: "Store | str | PathLike[str] | None" = None,
        limits: Limits | None = None,
        hooks: RunHooks | None = None,
        observers: Sequence[Observer] = (),
        middleware: Sequence[Middleware[C]] = (),
        compaction: Any = None,
        async_tool_calls: bool = True,
        max_reconnects: int = 5,
        reconnect_delay: float = 0.25,
        guardrail_interval: int = 100,
        handoff_rules: HandoffRules | None = None,
        extra_agents: Sequence[BaseAgent[Any, Any]] = (),
        prompt_language: PromptLanguage = "en",
        prices: Prices | bool = True,
    ) -> None:
        """Compile the team.

        Args:
            agent: The first agent; it and all agents it can reach must be `RealtimeAgent`s.
            model: A realtime model, or `provider:name`.
            settings: Modality, voice, audio formats and turn detection of the sessions.
            text_model: Model of text agents that are tools.
            store: Store of the runs, or its address.
            limits: Limits of each session; by default, model calls and transfers are unlimited.
            hooks: Lifecycle hooks.
            observers: Observers of all events.
            middleware: Code around tool calls and activations. A realtime model has no requests for it to wrap.
            compaction: Refused: a realtime model keeps the conversation in its session.
            async_tool_calls: Whether the conversation continues while tools run.
            max_reconnects: Reconnect attempts before a session is lost.
            reconnect_delay: Seconds before the first attempt; doubled for each further one.
            guardrail_interval: Characters of transcript between two checks of the output guardrails.
            handoff_rules: What happens at several transfers, invalid calls and loops; `HandoffRules(…)`.
            extra_agents: Agents of the team that no edge leads to.
            prompt_language: Language of Baton's own texts for the model.
            prices: See `Runner`. No default has prices for audio: give a `PriceTable` with those of your model.

        Raises:
            SetupError: The team or an option is invalid.
        """
        self._runner: Runner[C, str] = Runner(
            agent,
            model=text_model,
            limits=limits or _LIMITS,
            store=store,
            history="verbatim",
            handoff_rules=handoff_rules,
            hooks=hooks,
            prompt_language=prompt_language,
            extra_agents=extra_agents,
            observers=observers,
            middleware=middleware,
            prices=prices,
        )
        if compaction is not None:
            raise SetupError(
                "RealtimeRunner() has compaction, but a realtime model keeps the conversation in its session; give "
                "the compaction to a text agent that is a tool, or to the Runner of text runs of the thread"
            )
        _refuse_model_middleware("RealtimeRunner()", middleware)
        for seat in self._runner.team.members.values():
            if not isinstance(seat.agent, RealtimeDefinition):
                raise SetupError(
                    f"`{seat.agent.name}` is {type_of(seat.agent)} and cannot be active in a realtime "
                    "session; make it a RealtimeAgent, or give it to one as a tool: as_tool()"
                )
            _refuse_model_middleware(f"`{seat.agent.name}`", seat.agent.middleware)
        if min(max_reconnects, reconnect_delay) < 0:
            raise SetupError("RealtimeRunner() has a negative max_reconnects or reconnect_delay; give 0 or more")
        check_positive("RealtimeRunner(guardrail_interval=…)", guardrail_interval)
        self.model = resolve_realtime_model(model)
        self.settings = settings or RealtimeSettings()
        self._options = SessionOptions(max_reconnects, reconnect_delay, async_tool_calls, guardrail_interval)

    def connect(
        self, history: RunInput = (), *, playback: PlaybackTracker | None = None, **args: Unpack[RunArgs[C]]
    ) -> RealtimeSession:
        """Create a session, to be opened with `async with`.

        Args:
            history: Messages from before the session.
            playback: Tracker of your playback; by default, one that assumes playback in real time.
            **args: See `RunArgs`. A thread may have text and realtime runs.
        """
        check_run_args("RealtimeRunner.connect()", args, "playback")
        _refuse_text_model("RealtimeRunner.connect()", args)
        run_id = args["run_id"] = args.get("run_id") or new_id()
        controller = SessionController(self.model, self.settings, self._options, name=run_id, playback=playback)
        stream = self._runner._for_live(controller).stream(history, **args)
        return RealtimeSession(stream, controller, self._runner)

    def resume(
        self,
        run_id: str,
        answers: Any = None,
        *,
        playback: PlaybackTracker | None = None,
        **args: Unpack[ResumeArgs[C]],
    ) -> RealtimeSession:
        """Create a session that resumes an interrupted one; recorded steps are not executed again.

        Args:
            run_id: The run to resume.
            answers: Answers by interrupt id, or the answer itself if exactly one interrupt is open.
            playback: Tracker of your playback.
            **args: See `ResumeArgs`.
        """
        check_resume_args("RealtimeRunner.resume()", args, "playback")
        _refuse_text_model("RealtimeRunner.resume()", args)
        controller = SessionController(self.model, self.settings, self._options, name=run_id, playback=playback)
        stream = self._runner._for_live(controller).stream_resume(run_id, answers, **args)
        return RealtimeSession(stream, controller, self._runner)

    @property
    def text_runner(self) -> "Runner[C, str]":
        """The underlying runner; its `runs` has the events and replays of sessions."""
        return self._runner

    def clone(
        self,
        *,
        model: RealtimeModel | str | None = None,
        settings: RealtimeSettings | None = None,
        store: "Store | str | PathLike[str] | None" = None,
    ) -> Self:
        """Return a runner of the same team with another model, settings or store.

        Args:
            model: A realtime model, or `provider:name`.
            settings: Modality, voice, audio formats and turn detection of the sessions.
            store: The store, or its address.
        """
        twin = copy(self)
        if model is not None:
            twin.model = resolve_realtime_model(model)
        if settings is not None:
            twin.settings = settings
        if store is not None:
            twin._runner = self._runner.clone(store=store)
        return twin

    def thread(self, id: str) -> Thread:
        """Return a thread: consecutive runs that share history.

        Args:
            id: Id of the thread.
        """
        return self._runner.thread(id)

    async def close(self) -> None:
        """Close the store."""
        await self._runner.close()


def _refuse_text_model(method: str, args: Mapping[str, Any]) -> None:
    for name in ("model", "model_settings"):
        if args.get(name) is not None:
            raise SetupError(
                f"{method} has {name}={show(args[name])}, but a session has the model of RealtimeRunner(model=…); "
                "for a text agent that is a tool, use agent_options={name: AgentOptions(…)}"
            )


def _refuse_model_middleware(owner: str, middleware: Sequence[Middleware[Any]]) -> None:
    for each in middleware:
        if overrides(each, "model_call"):
            raise SetupError(
                f"{owner} has middleware `{each.name or type(each).__name__}` with model_call, but a realtime model "
                "answers in one long session; use tool_call or activation, or give the middleware to a text agent "
                "that is a tool"
            )
