"""LangGraph with its SQLite checkpointer: `python -m benchmarks.peers.langgraph_sqlite STEPS` prints a JSON object."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.langgraph import CONFIG, tool_graph
from benchmarks.script import Script
from benchmarks.workloads import QUESTION, Outcome, tool_loop

ROUNDS = 3


async def measured(steps: int, path: Path) -> dict[str, float]:
    workload = tool_loop("kept", "", tool_calls=steps)
    script = Script(workload)
    samples: list[float] = []
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        graph = tool_graph(workload, script, checkpointer=saver)
        for number in range(ROUNDS):
            config = CONFIG | {"configurable": {"thread_id": str(number)}}
            started = time.perf_counter()
            state = await graph.ainvoke({"messages": [HumanMessage(QUESTION)]}, config)
            samples.append(time.perf_counter() - started)
            last = state["messages"][-1]
            assert Outcome(last.content, last.name) == workload.expected
    size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
    return {"seconds": min(samples), "bytes": size / ROUNDS}


if __name__ == "__main__":
    with TemporaryDirectory(prefix="baton-bench-") as folder:
        print(json.dumps(asyncio.run(measured(int(sys.argv[1]), Path(folder) / "peer.db"))))
