"""Run an example and compare restored requests with sent ones.

`python -m tests.integration.inspection.recorded_example FILE` runs one example.

Runners without a store get one in memory, and all models note the requests that they receive. When the example ends,
its logs are read again without the example's code, and one line says how many requests were compared.
"""

import asyncio
import runpy
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterable
from functools import partial
from itertools import count
from typing import Any

import msgspec

from batonkit import Agent, Runner, stores
from batonkit.log import AgentResponded
from batonkit.models import ModelRequest
from batonkit.stores import MemoryStore
from batonkit.stores.addresses import resolve_store
from batonkit.team import RecordedRequest
from batonkit.testing import ScriptedModel

SENT: Counter[str] = Counter()
LINES: defaultdict[str, defaultdict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
"""The lines of every log, by the store and the run."""


def describe(request: ModelRequest | RecordedRequest) -> str:
    """Return everything that a model reads, as JSON."""
    rest = (request.tools, request.settings, request.output_schema, request.tool_choice, request.instructions)
    return msgspec.json.encode((request.agent, tuple(request.messages), *rest)).decode()


def note_requests() -> None:
    """Let every scripted model note the requests that it receives."""
    respond = ScriptedModel.respond

    def noting(self: ScriptedModel, request: ModelRequest) -> AsyncIterable[Any]:
        SENT[describe(request)] += 1
        return respond(self, request)

    ScriptedModel.respond = noting  # pyright: ignore[reportAttributeAccessIssue]


def keep_logs() -> None:
    """Give every runner a store, and keep what is written to stores."""
    make: Any = Runner.__init__
    resolve, numbers = stores.resolve_store, count(1)

    def with_store(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **{**options, "store": options.get("store") or MemoryStore()})

    def kept(given: Any, **options: Any) -> Any:
        store: Any = resolve(given, **options)
        if isinstance(store.append, partial):
            return store
        # Runners of one file share its runs; every store in memory is another.
        place = f"memory {next(numbers)}" if isinstance(store, MemoryStore) else repr(store)
        for name in ("create", "append"):
            setattr(store, name, partial(_write, place, getattr(store, name)))
        return store

    Runner.__init__ = with_store
    stores.resolve_store = kept


async def _write(store: str, method: Any, run_id: str, *args: Any, **options: Any) -> Any:
    returned = await method(run_id, *args, **options)
    LINES[store][run_id] += args[-1]
    return returned


async def compare() -> int:
    """Restore the requests of all runs, and return their number."""
    stores.resolve_store = resolve_store
    restored: Counter[str] = Counter()
    for runs in [*LINES.values()]:
        memory = MemoryStore()
        for run_id, lines in runs.items():
            await memory.create(run_id, lines, status="completed")
        viewer = Runner(Agent("viewer"), store=memory)
        for run_id in [*runs]:
            events, requests = await viewer.runs.events(run_id), await viewer.runs.requests(run_id)
            responses = [event for event in events if isinstance(event, AgentResponded) and event.request is not None]
            called = [event for event in events if isinstance(event, AgentResponded) and event.model]
            assert [*requests] == [event.key for event in responses], "a recorded request was not restored"
            assert all(event.model_calls == 0 or event.request is not None for event in called), "no record"
            restored.update(map(describe, requests.values()))
    # A fork has the requests of the run that it was made of, and a replayed prefix was sent once.
    assert restored.keys() <= SENT.keys(), "a restored request was never sent"
    return restored.total()


def main() -> None:
    """Run the example that the command line names."""
    note_requests()
    keep_logs()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    print(f"compared {asyncio.run(compare())} requests; {SENT.total()} were sent")


if __name__ == "__main__":
    main()
