"""Spans and metrics as an OTLP receiver gets them from the real exporter."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.otel.receiver import Receiver, otlp_receiver
from tests.otel.test_otlp import no_otel_errors as no_otel_errors

pytestmark = pytest.mark.usefixtures("no_otel_errors")


PROGRAM = """
import asyncio, sys
from batonkit import Agent, Runner, tool
from batonkit.otel import OTelObserver
from batonkit.testing import ScriptedModel, call

@tool(needs_approval=True)
async def pay(euro: int) -> str:
    return f"{euro} paid"

async def main() -> None:
    url, store, run_id = sys.argv[1:]
    observer = OTelObserver.to(url)
    model = ScriptedModel([call("pay", euro=5)] if not run_id else ["Done."])
    async with Runner(Agent("A", tools=[pay]), model=model, store=store, observers=[observer]) as runner:
        if run_id:
            print((await runner.resume(run_id, True)).output)
        else:
            print((await runner.run("Pay", thread="t1")).run_id)
    observer.close()

asyncio.run(main())
"""


async def drive_in_processes(received: Receiver, store: str) -> None:
    """Start a run in one process, and resume it in another."""

    async def run(run_id: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, received.url, store, run_id, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await process.communicate()
        assert (process.returncode, "detach" in errors.decode()) == (0, False), errors.decode()
        return output.decode().strip()

    assert await run(await run("")) == "Done."


async def check_link(store: str) -> None:
    with otlp_receiver() as received:
        await drive_in_processes(received, store)
        first, second = received.all("invoke_workflow A")
        assert first.attributes["baton.run.status"] == "suspended"
        assert second.links == [(first.trace, first.id)]
        assert second.trace != first.trace
        assert {span.attributes["gen_ai.conversation.id"] for span in received.spans} == {"t1"}
        assert [span.name for span in received.spans if span.trace == second.trace and span.parent == second.id] == [
            "invoke_agent A"
        ]


async def test_a_run_that_is_resumed_in_another_process_is_linked_to_its_first_trace(tmp_path: Path) -> None:
    await check_link(str(tmp_path / "runs.db"))


async def test_a_run_in_postgresql_that_is_resumed_in_another_process_is_linked(postgres_url: str) -> None:
    await check_link(postgres_url)
