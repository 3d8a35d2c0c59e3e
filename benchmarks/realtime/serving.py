"""`python -m benchmarks.realtime.serving`: a provider of live conversations in a process of its own, which counts.

It prints its address. To each line that it reads it answers in JSON: to `quiet` how much came and went, as soon as it
says nothing more; to `report` what it has counted in the sessions since the last one, as soon as they are closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from hashlib import blake2b
from itertools import repeat
from typing import Any, Literal, TypeAlias

from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import ServedSession

from batonkit.testing import call
from batonkit.testing.scripted import ScriptStep

Kind: TypeAlias = Literal["changes", "load"]
_WORDS = "there is a good deal to be said about that and it takes some time to say"
_UPDATE, _ARGUMENTS, _DONE = "session.update", "response.function_call_arguments.done", "response.done"
_CROSSED = ("conversation_already_has_active_response", "response_cancel_not_active")
"""Errors that cannot be avoided: a request of the client crossed an action of the provider."""


def server_for(kind: Kind, pace: float) -> OpenAIRealtimeServer:
    """Two agents that hand over to each other: at every turn, or at every third, with words between."""
    words: list[ScriptStep] = [] if kind == "changes" else [_WORDS, _WORDS]
    steps = {name: [*words, call(f"transfer_to_{other}")] for name, other in (("a", "b"), ("b", "a"))}
    return OpenAIRealtimeServer(
        steps,
        by=lambda session: session.settings["instructions"],
        hears=repeat("what the user says"),
        cycle=True,
        pace=pace or None,
        record=False,
    )


def account_of(session: ServedSession) -> dict[str, Any]:
    """The counts of one session; the delays are from a call to the new settings, in seconds."""
    since_arguments: list[float] = []
    since_done: list[float] = []
    # The first are those that the session begins with.
    updates = [each.at for each in session.received if each.type == _UPDATE][1:]
    arguments = [each.at for each in session.sent if each.type == _ARGUMENTS]
    done = [each.at for each in session.sent if each.type == _DONE]
    for at in updates:
        since_arguments.append(at - max(each for each in arguments if each < at))
        since_done.append(at - max(each for each in done if each < at))
    return {
        "received": len(session.audio),
        "received_digest": blake2b(session.audio).hexdigest(),
        "frames": session.audio_frames,
        "sent": {id: _sound(session, id) for id in session.audio_sent},
        "changes": len(updates),
        "since_arguments": since_arguments,
        "since_done": since_done,
        "complaints": [each.message for each in session.complaints if each.code not in _CROSSED],
    }


def _sound(session: ServedSession, item_id: str) -> tuple[int, str, bool]:
    """The audio of an item that was sent, and whether all of it was to be heard."""
    audio, item = session.audio_sent[item_id], session.conversation.find(item_id, "report")
    is_whole = item.status == "completed" and not item.is_truncated
    return len(audio), blake2b(audio).hexdigest(), is_whole


async def main(kind: Kind, pace: float) -> None:
    """Serve until there is nothing more to read."""
    loop = asyncio.get_running_loop()
    async with server_for(kind, pace) as server:
        print(server.base_url, flush=True)
        began = time.process_time()
        while wish := await loop.run_in_executor(None, sys.stdin.readline):
            if wish == "quiet\n":
                while any(session.is_speaking for session in server.sessions):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
                went = sum(len(session.sent) for session in server.sessions)
                came = sum(len(session.received) for session in server.sessions)
                print(json.dumps([went, came]), flush=True)
                continue
            for session in server.sessions:
                await session.until_closed()
            accounts = [account_of(session) for session in server.sessions]
            server.sessions.clear()
            print(json.dumps({"sessions": accounts, "cpu": time.process_time() - began}), flush=True)
            began = time.process_time()


if __name__ == "__main__":
    asyncio.run(main("changes" if sys.argv[1] == "changes" else "load", float(sys.argv[2])))
