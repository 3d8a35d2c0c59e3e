"""The grammar of keys: the identity of everything that happens in a run.

    key        = activation "/" effect                  an event of an activation
               | key "/" part                           something inside another effect: "1/m2/user1"
               | key "!"                                the answer to an interrupt: "1/m2.0/ask1!"
               | word number                            the run itself stopped or resumed: "suspended7"
    activation = flow hop                               "1", "2": the first and second agent that was active
               | activation "/mw:again/" number         a further attempt that middleware has made
    flow       = ""                                     the outermost
               | activation "/" place "/"               a step of a workflow: "1/0/", "1/2.1/", "1/review/"
               | activation "/" call "/"                an agent that runs as a tool: "1/m2.0/"
    effect     = "start" | "to" | "end"                 the activation began, passed control on, ended
               | response | call | "say" number | "then" | "failed" | "step:" name | "ask" number | …
    response   = "m" turn | "i" item                    from a model: "1/m2"; in a live session: "1/i3"
    call       = response "." position                  the result of a tool call: "1/m2.0", "1/i3.0"

Code that records an effect may choose any word for its part; words that other code looks for have functions here. Names
that users choose, such as those of steps, are not escaped: they may contain a slash.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

Key: TypeAlias = str

FAILED: Final = "failed"
"""The last part of the key of a failure that the run tolerated."""
DISMISSED: Final = "dismissed"
"""The last part of the key of the decision that a call is not executed, or its interrupts are not answered."""
STOP: Final = "stop"
"""The last part of the key of an answer that `tool_use_behavior` made of the results of a response's calls."""
GUARDRAIL: Final = "guardrail:"
"""Prefix of the names of steps that record verdicts, and of the last part of their keys.

The stage, a colon and the guardrail's name follow.
"""
HOOK: Final = "hook:"
"""Prefix of the names of steps that record hook calls, and of the last part of their keys."""
MIDDLEWARE: Final = "mw:"
"""Prefix of the part of a key that stands for middleware."""

_FURTHER_ATTEMPT: Final = re.compile(r"/mw:again/\d+\Z")
_CALL: Final = re.compile(r"/[im]\d+\.\d+(?=/|\Z)")
_CALL_AT_END: Final = re.compile(r"/[im]\d+\.\d+\Z")
_RESPONSE: Final = re.compile(r"/m\d+\Z")
_ITEM: Final = re.compile(r"/i(\d+)\Z")
_NEXT: Final = re.compile(r"(.*/m\d+)/mw:([^/@]+)[^/]*/next\d+")
_ATTEMPT: Final = re.compile(r"/(intent|paused)\d+\Z")
_ABOUT_TRANSFER: Final = re.compile(r"/to/ask\d+\Z")
_UNKNOWN_OUTCOME: Final = re.compile(r"(.*)/unknown\d+/ask\d+")


# Make keys: activations and their flows


def activation(flow: str, hop: int) -> Key:
    """Return the id of the hop-th activation of a flow."""
    return f"{flow}{hop}"


def flow_at(scope: Key, place: str) -> str:
    """Return the flow at a place of an activation, such as a step of a workflow."""
    return f"{scope}/{place}/"


def flow_in_call(call: Key) -> str:
    """Return the flow of an agent that runs as a tool."""
    return f"{call}/"


def attempts(scope: Key) -> Key:
    """Return the key around all further attempts at an activation."""
    return f"{scope}/mw:again"


def attempt(scope: Key, number: int) -> Key:
    """Return the id of a further attempt at an activation."""
    return f"{attempts(scope)}/{number}"


def start(scope: Key) -> Key:
    """Return the key of the start of an activation."""
    return f"{scope}/start"


def transfer(scope: Key) -> Key:
    """Return the key of the transfer that an activation ended with."""
    return f"{scope}/to"


def end(scope: Key) -> Key:
    """Return the key of the end of an activation."""
    return f"{scope}/end"


# Make keys: effects


def inside(key: Key, part: str) -> Key:
    """Return the key of a part of an effect or activation, such as `user1` of a response."""
    return f"{key}/{part}"


def response(scope: Key, turn: int) -> Key:
    """Return the key of a model's turn-th response in an activation."""
    return f"{scope}/m{turn}"


def item(scope: Key, number: int) -> Key:
    """Return the key of what was said at a position of a live conversation."""
    return f"{scope}/i{number}"


def call(response: Key, position: int) -> Key:
    """Return the key of the result of one of a response's tool calls."""
    return f"{response}.{position}"


def sent_message(response: Key, id: str, part: int) -> Key:
    """Return the scope of the checks of a part of a message that was sent to a running run."""
    return f"{response}/message:{id}#{part}"


def final_answer(scope: Key) -> Key:
    """Return the key of the answer of an activation that no response of its agent has said."""
    return f"{scope}/answer"


def said(scope: Key, number: int) -> Key:
    """Return the key of the number-th message that an activation's own code added."""
    return f"{scope}/say{number}"


def step(scope: Key, name: str, ordinal: int) -> Key:
    """Return the key of the ordinal-th step with this name."""
    return f"{scope}/step:{name}" if ordinal == 1 else f"{scope}/step:{name}#{ordinal}"


def interrupt(scope: Key, number: int) -> Key:
    """Return the key, and so the id, of the number-th interrupt in a scope."""
    return f"{scope}/ask{number}"


def answer(interrupt: Key) -> Key:
    """Return the key of the answer to an interrupt."""
    return f"{interrupt}!"


def failure(scope: Key) -> Key:
    """Return the key of the tolerated failure of an activation, or of a flow in one."""
    return f"{scope}/{FAILED}"


def dismissal(call: Key) -> Key:
    """Return the key of the decision that a call is not executed."""
    return f"{call}/{DISMISSED}"


def hook(scope: Key, point: str) -> Key:
    """Return the key of the calls of hooks at a point."""
    return f"{scope}/{HOOK}{point}"


def middleware(key: Key, name: str, repetition: str = "") -> Key:
    """Return the scope of middleware around an activation, model call or tool call."""
    return f"{key}/{MIDDLEWARE}{name}{repetition}"


def repetition(before: str, position: int, count: int) -> str:
    """Return the suffix for the count-th call of `next` by the middleware at a position."""
    return before if count == 1 else f"{before}@{position}.{count}"


def next_result(middleware: Key, number: int) -> Key:
    """Return the key of what the number-th call of `next` returned to middleware."""
    return f"{middleware}/next{number}"


def intent(call: Key, attempt: int) -> Key:
    """Return the key of the intent to execute a call whose effect must happen once."""
    return f"{call}/intent{attempt}"


def pause(call: Key, attempt: int) -> Key:
    """Return the key of the end of an attempt at such a call, by a question of its tool."""
    return f"{call}/paused{attempt}"


def unknown_outcome(call: Key, attempt: int) -> Key:
    """Return the scope of the question how an attempt at such a call ended.

    The attempt 0 is that of the run that a fork was copied from.
    """
    return f"{call}/unknown{attempt}"


def earlier_outcome(call: Key, number: int) -> Key:
    """Return the scope of the question about an earlier call in doubt, asked by this call."""
    return f"{call}/earlier{number}"


def requested_agent(call: Key) -> Key:
    """Return the key of the agent that a tool returned; it takes over after the turn."""
    return f"{call}/agent"


def run_event(status: str, number: int) -> Key:
    """Return the key of an event that a run may have several times, such as `suspended7`."""
    return f"{status}{number}"


# Read keys


def first_attempt(activation: Key) -> Key:
    """Return the id of an activation, given that of any attempt at it."""
    return _FURTHER_ATTEMPT.sub("", activation)


def parent(key: Key) -> Key:
    """Return the key around a key, "" for none: the scope of an effect."""
    return key.rpartition("/")[0]


def ancestors(key: Key) -> Iterator[Key]:
    """Yield the keys around a key, innermost first."""
    while key := parent(key):
        yield key


def name(key: Key) -> str:
    """Return the last part of a key."""
    return key.rpartition("/")[2]


def ends_with(key: Key, part: str) -> bool:
    """Return whether a part is the last one of a key; it may be a name that a user chose."""
    return key.endswith(f"/{part}")


def before(key: Key, part: str) -> Key:
    """Return the key around a last part, which may be a name that a user chose."""
    return key.removesuffix(f"/{part}")


def has_part(key: Key, start: str) -> bool:
    """Return whether a part of a key begins with this text."""
    return f"/{start}" in key


def contains(outer: Key, key: Key) -> bool:
    """Return whether a key is inside another one."""
    return key.startswith(f"{outer}/")


def is_effect_of(attempt: Key, key: Key) -> bool:
    """Return whether a key is inside an attempt at an activation.

    Middleware around it, and further attempts that middleware has made, are not.
    """
    return key.startswith(f"{attempt}/") and not key.startswith(f"{attempt}/{MIDDLEWARE}")


def bounds(key: Key) -> tuple[str, str]:
    """Return the texts between which all keys inside a key sort."""
    # "0" is the character after "/".
    return f"{key}/", f"{key}0"


def flow(activation: Key) -> str:
    """Return the flow of an activation."""
    return activation[: activation.rfind("/") + 1]


def is_nested(activation: Key) -> bool:
    """Return whether an activation is part of another one."""
    return "/" in activation


def depth(activation: Key) -> int:
    """Return the number of activations around one."""
    return activation.count("/") // 2


def owner(activation: Key) -> Key:
    """Return the activation around a nested one or of a further attempt; "" for none."""
    return parent(parent(activation))


def place_order(place: str) -> tuple[int, ...]:
    """Return the numbers of a place, for sorting; places with words are all equal."""
    numbers = place.split(".")
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else (-1,)


def is_in_call(activation: Key) -> bool:
    """Return whether an activation is part of a tool call, at any depth."""
    return _CALL.search(activation) is not None


def is_called(activation: Key) -> bool:
    """Return whether an activation is part of the flow of an agent that runs as a tool."""
    return is_call(parent(activation))


def calls_around(key: Key) -> list[Key]:
    """Return the tool calls that a key belongs to, outermost first; a call to itself."""
    return [key[: found.end()] for found in _CALL.finditer(key)]


def is_call(key: Key) -> bool:
    """Return whether a key is that of a model's tool call, unlike that of `then_transfer`."""
    return _CALL_AT_END.search(key) is not None


def call_of(result: Key) -> tuple[Key, int]:
    """Return the response and the position of a tool call."""
    response, _, position = result.rpartition(".")
    return response, int(position)


def is_in_calls_of(response: Key, key: Key) -> bool:
    """Return whether a key is that of one of a response's calls, or inside one."""
    return key.startswith(f"{response}.")


def is_response(key: Key) -> bool:
    """Return whether a key is that of the response to a model call."""
    return _RESPONSE.search(key) is not None


def item_number(key: Key) -> int | None:
    """Return the position of an item of a live conversation; None for other keys."""
    found = _ITEM.search(key)
    return None if found is None else int(found[1])


def is_about_transfer(interrupt: Key) -> bool:
    """Return whether an interrupt asks about a transfer that an agent's code has decided."""
    return _ABOUT_TRANSFER.search(interrupt) is not None


def looks_like_interrupt(text: str) -> bool:
    """Return whether a text was probably meant to be the id of an interrupt."""
    return "/ask" in text


def is_attempt_record(key: Key) -> bool:
    """Return whether a key ends like that of an `intent` or a `pause`, as a user's step may."""
    return _ATTEMPT.search(key) is not None


def call_with_unknown_outcome(interrupt: Key) -> Key | None:
    """Return the call whose outcome an interrupt asks for; None for other interrupts."""
    found = _UNKNOWN_OUTCOME.fullmatch(interrupt)
    return None if found is None else found[1]


def next_of(key: Key) -> tuple[Key, str] | None:
    """Return the response and middleware of the `next_result` with this key, if it is one."""
    found = _NEXT.fullmatch(key)
    return None if found is None else (found[1], found[2])


def as_call_id(call: Key) -> str:
    """Return the key of a tool call as an id that model providers accept."""
    return f"call_{call.replace('/', '_').replace('.', '_')}"
