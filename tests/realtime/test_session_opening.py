"""What is asked before the model has been reached."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from baton import RunContext, Tool, tool
from baton.errors import RunError
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from baton.testing import ScriptedRealtimeModel, call


@tool
def look_up() -> str:
    """Look something up."""
    return "found"


class Guarded:
    """Gives its tools away only to who knows the word."""

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        """The tools, once the word was right."""
        return [look_up] if await ctx.interrupt("what is the word?") == "please" else []


async def test_a_source_of_tools_may_ask_before_the_conversation_is_open() -> None:
    # R1, R2
    model = ScriptedRealtimeModel([call("look_up"), "There it is."])
    desk = RealtimeAgent("Desk", tools=[Guarded()])
    async with (
        asyncio.timeout(60),
        RealtimeRunner(desk, model=model, settings=RealtimeSettings(modality="text")).connect() as talk,
    ):
        (question,) = talk.interrupts
        assert model.connections == []
        with pytest.raises(RunError, match="not connected yet, because an interrupt is open"):
            await talk.send_text("Hello?")
        await talk.answer(question.id, "please")
        connection = await model.connection()
        assert [spec.name for spec in connection.settings.tools] == ["look_up"]
