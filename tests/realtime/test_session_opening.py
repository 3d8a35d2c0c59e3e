"""Interrupts before the session is connected to the model."""

from collections.abc import Sequence
from typing import Any

import pytest

from batonkit import RunContext, Tool, tool
from batonkit.errors import RunError
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from batonkit.testing import ScriptedRealtimeModel, call


@tool
def look_up() -> str:
    """Look something up."""
    return "found"


class PasswordToolset:
    """A toolset that asks for a password."""

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Tool]:
        """Return the tools if the answer is right."""
        return [look_up] if await ctx.interrupt("what is the password?") == "please" else []


async def test_a_toolset_can_interrupt_before_the_session_is_open() -> None:
    model = ScriptedRealtimeModel([call("look_up"), "There it is."])
    desk = RealtimeAgent("Desk", tools=[PasswordToolset()])
    async with (
        RealtimeRunner(desk, model=model, settings=RealtimeSettings(modality="text")).connect() as session,
    ):
        (question,) = session.interrupts
        assert model.connections == []
        with pytest.raises(RunError, match="not connected yet, because an interrupt is open"):
            await session.send_text("Hello?")
        await session.answer(question.id, "please")
        connection = await model.connection()
        assert [spec.name for spec in connection.settings.tools] == ["look_up"]
