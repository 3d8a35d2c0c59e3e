"""A terminal chat loop and the printing of messages, under Swarm's names."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ..._wording import printable
from ..core import Swarm
from ..functions import function_in
from ..types import Agent, Response

_BLUE = "\033[94m"
_PURPLE = "\033[95m"
_GREY = "\033[90m"
_PLAIN = "\033[0m"


def run_demo_loop(
    starting_agent: Agent,
    context_variables: dict[Any, Any] | None = None,
    stream: bool = False,
    debug: bool = False,
    *,
    client: Any = None,
) -> None:
    """Chat with the agents until the user types `exit` or the input ends."""
    swarm = Swarm(client) if client is not None else Swarm()
    print("Starting Swarm CLI on Baton. Type `exit` to leave.")
    messages: list[Any] = []
    agent: Agent | None = starting_agent
    variables = context_variables or {}
    while (text := _read_line()) is not None:
        messages.append({"role": "user", "content": text})
        if stream:
            response = process_and_print_streaming_response(
                swarm.run(agent=agent, messages=messages, context_variables=variables, stream=True, debug=debug)
            )
            if response is None:
                continue
        else:
            response = swarm.run(agent=agent, messages=messages, context_variables=variables, debug=debug)
            pretty_print_messages(response.messages)
        messages.extend(response.messages)
        agent = response.agent
        variables = response.context_variables


def process_and_print_streaming_response(response: Iterable[dict[str, Any]]) -> Response | None:
    """Print a streamed run as it arrives; return its Response, if there is one."""
    sender = ""
    is_in_text = False
    for chunk in response:
        sender = chunk.get("sender") or sender
        text = chunk.get("content")
        if text:
            if not is_in_text and sender:
                print(f"{_BLUE}{printable(sender)}:{_PLAIN}", end=" ", flush=True)
            print(printable(text), end="", flush=True)
            is_in_text = True
        for call in chunk.get("tool_calls") or ():
            name = function_in(call).get("name")
            if name:
                print(f"{_BLUE}{printable(sender)}: {_PURPLE}{printable(name)}{_PLAIN}()")
        if chunk.get("delim") == "end" and is_in_text:
            print()
            is_in_text = False
        if "response" in chunk:
            return chunk["response"]
    return None


def pretty_print_messages(messages: Sequence[dict[str, Any]]) -> None:
    """Print the texts and calls of agents."""
    for message in messages:
        if message["role"] != "assistant":
            continue
        print(f"{_BLUE}{printable(message.get('sender', ''))}{_PLAIN}:", end=" ")
        if message.get("content"):
            print(printable(message["content"]))
        calls = message.get("tool_calls") or ()
        if len(calls) > 1:
            print()
        for call in calls:
            function = call["function"]
            arguments = printable(_format_arguments(function["arguments"]))
            print(f"{_PURPLE}{printable(function['name'])}{_PLAIN}({arguments})")


def _format_arguments(arguments: str) -> str:
    try:
        parsed: Any = json.loads(arguments)
        return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in parsed.items())
    except (ValueError, AttributeError):
        return arguments


def _read_line() -> str | None:
    """Return the user's input, None at its end."""
    try:
        line = input(f"{_GREY}User{_PLAIN}: ")
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    return None if line.strip().lower() == "exit" else line
