"""A server of Chat Completions that does as little as it can: `python -m benchmarks.http.server TOOL_CALLS`.

Prints its port and serves until its standard input is closed. It asks for one more call of the tool until the
conversation has as many results as it was told, so that a client that loses one never gets its answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

RESULT = re.compile(rb'"role":\s*"tool"')
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


def reply(message: dict[str, Any], finish_reason: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "stub"}
    body = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def replies(tool_calls: int) -> list[bytes]:
    """Return the replies in order: a tool call for each, then the answer."""
    functions = ({"name": "step", "arguments": json.dumps({"n": number})} for number in range(tool_calls))
    calls = ({"id": f"call_{number}", "type": "function", "function": each} for number, each in enumerate(functions))
    return [
        *(reply({"content": None, "tool_calls": [call]}, "tool_calls") for call in calls),
        reply({"content": "done"}, "stop"),
    ]


class Connection(asyncio.Protocol):
    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while True:
            end = self.received.find(b"\r\n\r\n")
            length = LENGTH.search(self.received, 0, end)
            if end < 0 or length is None or len(self.received) < end + 4 + int(length[1]):
                return
            whole = end + 4 + int(length[1])
            self.transport.write(self.answers[len(RESULT.findall(self.received, end, whole))])
            del self.received[:whole]


async def serve(tool_calls: int) -> None:
    answers = replies(tool_calls)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
