"""Agno: a team in route mode, whose leader delegates to a member and returns its answer. It has no handoff."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.db.sqlite import SqliteDb
from agno.exceptions import RunNotFoundError
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.team import Team
from agno.team.mode import TeamMode

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Call, Script, Seen

logging.disable(logging.ERROR)


@dataclass
class ScriptedModel(Model):
    id: str = "scripted"
    script: Any = None
    agent: str = ""

    def invoke(self, messages: Any, *args: Any, **options: Any) -> ModelResponse:
        text, calls = self.script.play(self.agent, [seen(message) for message in messages], delegate)
        return ModelResponse(role="assistant", content=text or None, tool_calls=[call.chat for call in calls])

    async def ainvoke(self, messages: Any, *args: Any, **options: Any) -> ModelResponse:
        return self.invoke(messages)

    def invoke_stream(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def ainvoke_stream(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **options: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def delegate(target: str) -> Call:
    return Call("delegate_task_to_member", {"member_id": target, "task": "please go on"})


def seen(message: Any) -> Seen:
    calls = tuple(call["id"] for call in message.tool_calls or ()) if message.role == "assistant" else ()
    answers = (message.tool_call_id,) if message.role == "tool" else ()
    return Seen(message.role, str(message.content or ""), calls, answers)


def team(script: Script, db: Any = None) -> Team:
    def agent(name: str) -> Agent:
        return Agent(id=name, name=name, model=ScriptedModel(script=script, agent=name), telemetry=False)

    return Team(
        name=TRIAGE,
        mode=TeamMode.route,
        model=ScriptedModel(script=script, agent=TRIAGE),
        members=[agent(BILLING), agent(SHIPPING)],
        tools=[*script.tools()],
        db=db or InMemoryDb(),
        add_history_to_context=True,
        telemetry=False,
    )


class Runner:
    distribution = "agno"
    handoffs = "`Team(mode=route)`: the leader delegates"
    notes: Mapping[str, str] = {
        "target_reads": "the leader writes the task; `determine_input_for_members=False` passes the user's message",
        "crash": "with `SqliteDb`",
    }
    missing: Mapping[str, str] = {
        "interrupt": "a tool can need confirmation or input before it is called; it cannot ask while it runs",
        "ping_pong": "members answer their leader; they cannot hand over",
    }

    async def converse(self, script: Script, *messages: str) -> list[str]:
        made = team(script)
        answers = []
        for message in messages:
            result = await made.arun(message, session_id="s")
            if str(getattr(result.status, "value", "")).upper() == "ERROR":
                raise RuntimeError(str(result.content))
            answers.append(str(result.content))
        return answers

    async def start(self, script: Script, folder: Path) -> None:
        await team(script, SqliteDb(db_file=str(folder / "a.db"))).arun("charge 80", session_id="s", run_id="r")

    async def resume(self, script: Script, folder: Path) -> str:
        made = team(script, SqliteDb(db_file=str(folder / "a.db")))
        try:
            await made.acontinue_run(run_id="r", session_id="s")
        except RunNotFoundError:
            await made.arun("charge 80", session_id="s")
            return "no resume: the message is run again"
        return "resumes the run"

    async def interrupt(self, script: Script) -> str:
        raise NotImplementedError
