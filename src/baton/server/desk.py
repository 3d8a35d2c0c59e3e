"""What callers can ask for, in the API's own words: the hub, the door, and what is allowed."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from msgspec.structs import asdict, replace

from ..adapters.http import Principal
from ..adapters.http.door import RequestGuard
from ..adapters.http.problems import ServingError
from ..adapters.http.sse import COMMENT, frame, with_heartbeat
from ..context import Limits
from ..errors import AnswerError, RunNotFoundError, quote_names
from ..events import Delta, Event
from ..log import Log
from ..runner import BackgroundRunner
from ..runner.ids import new_id
from ..stores import RunRecord, RunStatus, Store
from .bodies import LimitsBody, RunDetail, RunPage, StartRunBody, ThreadView
from .views import as_sent, listed_run, whole_run

_OURS = "baton."
_Numbered = AsyncGenerator[tuple[int, Event | Delta]]


class RunService:
    """Serves one hub to callers, each of whom has runs and threads of their own."""

    def __init__(
        self,
        hub: BackgroundRunner,
        door: RequestGuard,
        *,
        context: Callable[[str], Any] | None,
        heartbeat: float,
        show_errors: bool,
    ) -> None:
        self.hub = hub
        self.door = door
        self._context = context
        self._heartbeat = heartbeat
        self._show_errors = show_errors
        self._store: Store = hub.runner._require_store("The HTTP API")

    async def begin(self, caller: Principal, wanted: StartRunBody) -> RunDetail:
        """Start a run; how it stands now."""
        for key in wanted.values:
            if key.startswith(_OURS):
                raise ServingError(422, "invalid", f"keys of values that begin with `{_OURS}` are not the caller's")
        run_id = await self.hub.start(
            wanted.input,
            context=self._context_for(caller),
            values=wanted.values,
            limits=self._limits(wanted.limits),
            run_id=caller.inside(wanted.run_id or new_id()),
            thread=caller.inside(wanted.thread) if wanted.thread else None,
            start_at=wanted.start_at,
            owner=caller.name,
        )
        return await self.run(caller, caller.outside(run_id))

    async def run(self, caller: Principal, id: str) -> RunDetail:
        """One run with what its log says."""
        record = await self._record(caller, id)
        return whole_run(record, await self.hub.runner.events(record.run_id), caller)

    async def answer(self, caller: Principal, id: str, answers: Mapping[str, Any] | None) -> RunDetail:
        """Go on with a run that has stopped, with answers or without."""
        record = await self._record(caller, id)
        if answers is not None and record.status != "suspended":
            raise ServingError(409, "not_waiting", f"the run is {record.status}; it waits for no answers")
        if answers is not None:
            # A hub takes a mapping of other keys for the one answer itself; here the ids are always given.
            questions = Log(await self.hub.runner.events(record.run_id)).open_questions()
            if unknown := [id for id in answers if id not in questions]:
                raise AnswerError(
                    f"no open question is called {quote_names(unknown)}; open are: {quote_names([*questions])}"
                )
        await self.hub.resume(record.run_id, answers, context=self._context_for(caller))
        return await self.run(caller, id)

    async def stop(self, caller: Principal, id: str, how: Any) -> RunDetail:
        """Have a run stopped, wherever it is driven."""
        record = await self._record(caller, id)
        await self.hub.cancel(record.run_id, how)
        return await self.run(caller, id)

    async def runs(
        self, caller: Principal, *, status: list[RunStatus] | None, thread: str | None, limit: int, after: str
    ) -> RunPage:
        """The caller's runs, the newest first."""
        inside = None if thread is None else caller.inside(thread)
        page = await self._store.list(status=status, thread=inside, owner=caller.whose, limit=limit, cursor=after)
        return RunPage(runs=tuple(listed_run(record, caller) for record in page.records), next=page.next_cursor)

    async def thread(self, caller: Principal, id: str) -> ThreadView:
        """A conversation of the caller's."""
        thread = self.hub.runner.thread(caller.inside(id))
        runs = await thread.runs()
        if not runs:
            raise ServingError(404, "not_found", "there is no such thread")
        return ThreadView(
            id=id,
            floor=await thread.active_agent(),
            runs=tuple(listed_run(record, caller) for record in runs),
            messages=await thread.messages(),
        )

    async def listening(self, caller: Principal, id: str, *, after: int) -> AsyncIterator[bytes] | None:
        """What happens in a run as server-sent events; None if it has stopped and nothing is left to hear."""
        record = await self._record(caller, id)
        if record.status != "running" and record.seq - 1 <= after:
            return None
        return self._frames(caller, record.run_id, after)

    async def _frames(self, caller: Principal, run_id: str, after: int) -> AsyncIterator[bytes]:
        heard = cast(_Numbered, self.hub.subscribe(run_id, after=after))
        async with aclosing(with_heartbeat(heard, self._heartbeat)) as items:
            async for item in items:
                if item is None:
                    yield COMMENT
                    continue
                number, event = item
                # A delta has no number: it is not in the log, and nobody can ask for it again.
                id = "" if isinstance(event, Delta) else str(number)
                data = as_sent(event, caller, show_errors=self._show_errors)
                yield frame(data, event=type(event).__name__, id=id)

    async def _record(self, caller: Principal, id: str) -> RunRecord:
        # Runs that came in by another protocol have ids that no caller chose, and that are the same for everybody.
        for known_as in dict.fromkeys((caller.inside(id), id)):
            record = await self._store.record(known_as)
            if record is not None and caller.sees(record.owner):
                return record
        raise RunNotFoundError(id)

    def _context_for(self, caller: Principal) -> Any:
        return None if self._context is None else self._context(caller.name)

    def _limits(self, wanted: LimitsBody | None) -> Limits | None:
        """The runner's limits, but for what a caller wants lower."""
        if wanted is None:
            return None
        own = asdict(self.hub.runner.limits)
        lower = {name: most for name, most in asdict(wanted).items() if most is not None}
        for name, most in lower.items():
            lower[name] = most if own[name] is None else min(most, own[name])
        return replace(self.hub.runner.limits, **lower)
