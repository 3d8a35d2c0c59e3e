"""Lesson 45: a desk that speaks: triage → billing → technician and back, on one open line. The model is scripted.

A server on this machine speaks OpenAI's Realtime format, and hears by itself when the caller has ceased to speak.

python examples/45_voice_desk.py
baton check examples/45_voice_desk.py:triage
"""

import asyncio
from collections import Counter

from tests.servers.realtime import OpenAIRealtimeServer, speech

from baton import tool
from baton.events import AgentResponded, ControlTransferred, UserMessageAdded
from baton.realtime import AudioDelta, OpenAIRealtimeModel, RealtimeAgent, RealtimeRunner
from baton.testing import ScriptStep, call, say


@tool
async def invoice(number: str) -> str:
    """Find an invoice by its number."""
    return f"{number}: 40 EUR, paid twice"


mender = RealtimeAgent("Technician", description="Mends modems.", instructions="Mend.", handoffs=["Triage"])
billing = RealtimeAgent("Billing", description="Pays.", instructions="Pay.", tools=[invoice], handoffs=[mender])
triage = RealtimeAgent("Triage", description="Knows who can help.", instructions="Ask.", handoffs=[billing])
CALLER = ["Something is wrong with invoice R-7.", "And my modem is dead.", "It works! Thank you."]
SCRIPT: dict[str, list[ScriptStep]] = {
    "Ask.": [say("I get you billing.", call("transfer_to_billing")), "Have a nice day."],
    "Pay.": [call("invoice", number="R-7"), "You get 40 euros back.", call("transfer_to_technician")],
    "Mend.": ["Hold its button for ten seconds.", say("Back to the desk.", call("transfer_to_triage"))],
}


async def main() -> None:
    print("scripted model: no language model is called")
    turns, played = iter(CALLER), Counter[str]()
    async with OpenAIRealtimeServer(SCRIPT, by=lambda it: it.settings["instructions"], hears=CALLER) as server:
        runner = RealtimeRunner(triage, model=OpenAIRealtimeModel(base_url=server.base_url, api_key=server.api_key))
        async with runner.connect() as session:
            await session.send_audio(speech(next(turns), pause_ms=600))
            async for event in session:
                if isinstance(event, AudioDelta):
                    played[event.item_id] += len(event.audio) // 48
                    # Who plays says how far; where the caller interrupts, it is cut at that word.
                    session.playback.played(event.item_id, played[event.item_id])
                elif isinstance(event, ControlTransferred):
                    print(f"  {event.source} → {event.target}")
                elif isinstance(event, UserMessageAdded | AgentResponded) and event.text:
                    print(f"{event.agent if isinstance(event, AgentResponded) else 'caller'}: {event.text}")
                if isinstance(event, AgentResponded) and not event.message.tool_calls:
                    if (words := next(turns, None)) is None:
                        break
                    await session.send_audio(speech(words, pause_ms=600))
    print(
        f"{sum(played.values())} ms of speech, {len(server.sessions)} connection, {session.active_agent} has the floor"
    )


if __name__ == "__main__":
    asyncio.run(main())
