"""Google ADK: `sub_agents=[…]` with `transfer_to_agent`, and a session service."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner as AdkRunner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Call, Script, Seen

logging.disable(logging.WARNING)
APP, USER, SESSION = "probe", "user", "session"


class ScriptedModel(BaseLlm):
    script: Any
    agent: str

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        read = [seen(content) for content in llm_request.contents]
        text, calls = self.script.play(
            self.agent, read, lambda target: Call("transfer_to_agent", {"agent_name": target})
        )
        parts = [types.Part(text=text)] if text else []
        parts += [types.Part(function_call=types.FunctionCall(id=id, name=name, args=args)) for id, name, args in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def seen(content: types.Content) -> Seen:
    texts, calls, answers = [], [], []
    for part in content.parts or []:
        texts.append(part.text or "")
        if part.function_call:
            calls.append(part.function_call.id or part.function_call.name)
        if part.function_response:
            texts.append(str(part.function_response.response))
            answers.append(part.function_response.id or part.function_response.name)
    role = "tool" if answers else {"model": "assistant"}.get(content.role or "", content.role or "")
    return Seen(role, " ".join(filter(None, texts)), tuple(calls), tuple(answers))


def team(script: Script) -> LlmAgent:
    async def ask_first(tool_context: ToolContext) -> str:
        """Ask a person."""
        script.act("before")
        if not tool_context.tool_confirmation:
            tool_context.request_confirmation(hint="go on?")
            return "waiting"
        script.act("after")
        return f"answered {tool_context.tool_confirmation.confirmed}"

    def agent(name: str, **options: Any) -> LlmAgent:
        return LlmAgent(
            name=name,
            description=f"Knows {name}.",
            model=ScriptedModel(model="s", script=script, agent=name),
            **options,
        )

    tools = [FunctionTool(each) for each in (*script.tools(), ask_first)]
    return agent(TRIAGE, tools=tools, sub_agents=[agent(BILLING), agent(SHIPPING)])


async def last_text(events: Any) -> str:
    text = ""
    async for event in events:
        for part in event.content.parts if event.content and event.content.parts else []:
            text = part.text or text
    return text


def user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


class Runner:
    distribution = "google-adk"
    handoffs = "`sub_agents=[…]`, session service"
    notes: Mapping[str, str] = {
        "ping_pong": "`RunConfig.max_llm_calls`, 500 by default",
        "crash": "with `ResumabilityConfig(is_resumable=True)`",
        "interrupt": "`request_confirmation()` returns, and the tool is called again with the answer",
    }
    missing: Mapping[str, str] = {}

    async def converse(self, script: Script, *messages: str) -> list[str]:
        runner = AdkRunner(agent=team(script), app_name=APP, session_service=InMemorySessionService())
        await runner.session_service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
        return [
            await last_text(runner.run_async(user_id=USER, session_id=SESSION, new_message=user(message)))
            for message in messages
        ]

    def resumable(self, script: Script, folder: Path) -> AdkRunner:
        app = App(name=APP, root_agent=team(script), resumability_config=ResumabilityConfig(is_resumable=True))
        return AdkRunner(app=app, session_service=SqliteSessionService(str(folder / "s.db")))

    async def start(self, script: Script, folder: Path) -> None:
        runner = self.resumable(script, folder)
        await runner.session_service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
        await last_text(runner.run_async(user_id=USER, session_id=SESSION, new_message=user("charge 80")))

    async def resume(self, script: Script, folder: Path) -> str:
        runner = self.resumable(script, folder)
        session = await runner.session_service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert session is not None
        id = session.events[-1].invocation_id
        await last_text(runner.run_async(user_id=USER, session_id=SESSION, invocation_id=id))
        return "resumes the invocation"

    async def interrupt(self, script: Script) -> str:
        runner = AdkRunner(agent=team(script), app_name=APP, session_service=InMemorySessionService())
        await runner.session_service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
        call = None
        async for event in runner.run_async(user_id=USER, session_id=SESSION, new_message=user("go")):
            for found in event.get_function_calls():
                call = found if found.name == "adk_request_confirmation" else call
        assert call is not None
        response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
        message = types.Content(role="user", parts=[types.Part(function_response=response)])
        return await last_text(runner.run_async(user_id=USER, session_id=SESSION, new_message=message))
