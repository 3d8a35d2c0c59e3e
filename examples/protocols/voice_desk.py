"""A voice desk: triage → billing → technician and back in one open session. The model is scripted.

The scripted model runs in memory. It detects in the audio when the caller has stopped speaking, as a provider does.

python examples/protocols/voice_desk.py
baton check examples/protocols/voice_desk.py:triage
"""

import asyncio
from collections import Counter

from batonkit import tool
from batonkit.log import AgentResponded, ControlTransferred, UserMessageAdded
from batonkit.realtime import AudioDelta, RealtimeAgent, RealtimeRunner
from batonkit.testing import ScriptedRealtimeModel, ScriptStep, call, say, speech


@tool
async def invoice(number: str) -> str:
    """Find an invoice by its number."""
    return f"{number}: 40 EUR, paid twice"


technician = RealtimeAgent("Technician", description="Repairs modems.", handoffs=["Triage"])
billing = RealtimeAgent("Billing", description="Handles invoices.", tools=[invoice], handoffs=[technician])
triage = RealtimeAgent("Triage", description="Knows who can help.", handoffs=[billing])
CALLER = ["Something is wrong with invoice R-7.", "And my modem is dead.", "It works! Thank you."]
SCRIPT: dict[str, list[ScriptStep]] = {
    "Triage": [say("I get you billing.", call("transfer_to_billing")), "Have a nice day."],
    "Billing": [call("invoice", number="R-7"), "You get 40 euros back.", call("transfer_to_technician")],
    "Technician": ["Hold its button for ten seconds.", say("Back to the desk.", call("transfer_to_triage"))],
}


async def main() -> None:
    print("scripted model: no language model is called")
    turns, played = iter(CALLER), Counter[str]()
    model = ScriptedRealtimeModel(SCRIPT, hears=CALLER)
    async with RealtimeRunner(triage, model=model).connect() as session:
        await session.send_audio(speech(next(turns), pause_ms=600))
        async for event in session:
            if isinstance(event, AudioDelta):
                played[event.item_id] += len(event.audio) // 48
                # Report what was played, so that an interruption is cut at the right word.
                session.playback.played(event.item_id, played[event.item_id])
            elif isinstance(event, ControlTransferred):
                print(f"  {event.source} → {event.target}")
            elif isinstance(event, UserMessageAdded | AgentResponded) and event.text:
                print(f"{event.agent if isinstance(event, AgentResponded) else 'caller'}: {event.text}")
            if isinstance(event, AgentResponded) and not event.message.tool_calls:
                if (words := next(turns, None)) is None:
                    break
                await session.send_audio(speech(words, pause_ms=600))
    print(f"{sum(played.values())} ms of speech, {len(model.connections)} connection, active: {session.active_agent}")


if __name__ == "__main__":
    asyncio.run(main())
