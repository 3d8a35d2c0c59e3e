"""The probes: a script for each situation, and the facts that are read off what happened."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contract.case import (
    BILLING,
    NOBODY,
    SHIPPING,
    TRIAGE,
    Call,
    Peer,
    Reply,
    Request,
    Script,
    Seen,
    StillRunningError,
    Transfer,
)

LOOK_UP, RESERVE = Call("look_up", {"order": "A-17"}), Call("reserve", {"item": "lamp"})
RESULTS = {"look_up": "order A-17 is paid", "reserve": "lamp is reserved"}
ANSWERS = {TRIAGE: "triage answers", BILLING: "billing answers", SHIPPING: "shipping answers"}
MAX_ERROR = 110


@dataclass(frozen=True)
class Outcome:
    """An outcome in a few words for a table, and its details."""

    short: str
    detail: str = ""


def answering(agent: str) -> list[Reply]:
    """Return the replies of an agent that only answers."""
    return [Reply(ANSWERS[agent])]


def script_of(*first: Reply, folder: Path | None = None) -> Script:
    """Return a script in which triage begins with these replies, and every agent then answers."""
    replies = {TRIAGE: [*first, *answering(TRIAGE)], BILLING: answering(BILLING), SHIPPING: answering(SHIPPING)}
    return Script(replies, folder)


async def attempt(running: Awaitable[object]) -> str:
    """Await a run; return its error as text, "" if it has none."""
    try:
        await running
    except StillRunningError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the error is the outcome
        text = " ".join(str(error).split())
        causes = (error.__cause__, error.__context__)
        if StillRunningError.__name__ in text or any(isinstance(each, StillRunningError) for each in causes):
            return "still running"
        return f"{type(error).__name__}: {text[:MAX_ERROR]}{'…' if len(text) > MAX_ERROR else ''}"
    return ""


def history_problems(request: Request) -> list[str]:
    """Return the calls and results of a request that a provider would refuse."""
    called = [id for message in request.messages for id in message.calls]
    answered = [id for message in request.messages for id in message.answers]
    missing = [id for id in called if id not in answered]
    twice = {id for id in answered if answered.count(id) > 1} | {id for id in called if called.count(id) > 1}
    unasked = [id for id in answered if id not in called]
    problems = [
        (len(missing), "without a result"),
        (len(twice), "with two results"),
        (len(unasked), "of results without a call"),
    ]
    return [f"{count} call{'s' if count > 1 else ''} {what}" for count, what in problems if count]


def joined(texts: list[str]) -> str:
    """Join texts with semicolons."""
    return "; ".join(text for text in texts if text)


def after_triage(script: Script) -> list[str]:
    """Return the agents that were asked after the first reply, in order, without repetitions."""
    agents: list[str] = []
    for request in script.requests[1:]:
        if not agents or agents[-1] != request.agent:
            agents.append(request.agent)
    return agents


def facts(script: Script, error: str, tools: tuple[str, ...]) -> Outcome:
    """Describe what ran, who got control, and what that agent reads."""
    ran = [f"{script.effects.count(name)}x" for name in tools]
    ran_text = f"{sum(name in script.effects for name in tools)}/{len(tools)} tools run" if tools else ""
    if any(count not in ("0x", "1x") for count in ran):
        ran_text += f" ({', '.join(ran)})"
    to = after_triage(script)
    control = f"control: {' → '.join(to)}" if to else "no agent continues"
    last = next((request for request in script.requests[1:] if request.agent != TRIAGE), None)
    last = last or (script.requests[-1] if len(script.requests) > 1 else None)
    read, valid = "", ""
    if last is not None:
        found = [name for name in tools if any(RESULTS[name] in message.text for message in last.messages)]
        read = f"{len(found)}/{len(tools)} results read" if tools else ""
        problems = [*dict.fromkeys(each for request in script.requests[1:] for each in history_problems(request))]
        valid = f"invalid history ({', '.join(problems)})" if problems else "valid history"
    name = error.partition(":")[0] if error else ""
    return Outcome(joined([name, ran_text, control, read, valid]), joined([error, losing_calls(script)]))


def losing_calls(script: Script) -> str:
    """Quote the results of transfers that the next agents read."""
    texts = [
        message.text[:90]
        for message in (script.requests[-1].messages if len(script.requests) > 1 else ())
        if message.answers and not any(result in message.text for result in RESULTS.values())
    ]
    return f"results of the transfer calls: {' | '.join(texts)}" if texts else ""


async def tool_beside_transfer(peer: Peer) -> Outcome:
    """One response with a tool call and a transfer."""
    script = script_of(Reply(calls=(LOOK_UP, Transfer(BILLING))))
    return facts(script, await attempt(peer.converse(script, "hello")), ("look_up",))


async def two_transfers(peer: Peer) -> Outcome:
    """One response with two transfers."""
    script = script_of(Reply(calls=(Transfer(BILLING), Transfer(SHIPPING))))
    return facts(script, await attempt(peer.converse(script, "hello")), ())


async def two_tools_two_transfers(peer: Peer) -> Outcome:
    """One response with two tool calls and two transfers."""
    script = script_of(Reply(calls=(LOOK_UP, Transfer(BILLING), RESERVE, Transfer(SHIPPING))))
    return facts(script, await attempt(peer.converse(script, "hello")), ("look_up", "reserve"))


async def unknown_target(peer: Peer) -> Outcome:
    """A transfer to an agent that does not exist."""
    script = script_of(Reply(calls=(Transfer(NOBODY),)))
    answers: list[str] = []

    async def run() -> None:
        answers.extend(await peer.converse(script, "hello"))

    error = await attempt(run())
    if error:
        return Outcome(f"the run fails: {error.partition(':')[0]}", error)
    told = [
        message for message in (script.requests[-1].messages if len(script.requests) > 1 else ()) if message.answers
    ]
    if not told:
        return Outcome("the model is not told; the run ends", f"answer: {' '.join(answers[-1].split())[:120]}")
    names = [name for name in (BILLING, SHIPPING) if name in told[-1].text]
    problems = history_problems(script.requests[-1])
    listed = "with the names that exist" if len(names) == 2 else "without the names that exist"
    return Outcome(joined([f"the model is told, {listed}", *problems]), f"told: {told[-1].text[:160]}")


async def ping_pong(peer: Peer) -> Outcome:
    """Two agents that hand control to each other for ever, with the framework's defaults."""
    script = Script({TRIAGE: [Reply(calls=(Transfer(BILLING),))], BILLING: [Reply(calls=(Transfer(TRIAGE),))]})
    answers: list[str] = []

    async def run() -> None:
        answers.extend(await peer.converse(script, "hello"))

    error = await attempt(run())
    calls = len(script.requests)
    if error.startswith("still running"):
        return Outcome(f"not stopped within {calls - 1} model calls", "stopped by the probe")
    how = error.partition(":")[0] or "the run ends without an error"
    return Outcome(f"stops after {calls} model calls: {how}", error or f"answer: {answers}")


async def target_reads(peer: Peer) -> Outcome:
    """A handoff after triage used a tool and said something: what the target reads."""
    script = script_of(Reply(calls=(LOOK_UP,)), Reply("One moment, please.", (Transfer(BILLING),)))
    error = await attempt(peer.converse(script, "my bill is wrong"))
    request = next((request for request in script.requests if request.agent == BILLING), None)
    if request is None:
        return Outcome("the target is not asked", error)
    texts = " ".join(message.text for message in request.messages)
    wanted = {"user": "my bill is wrong", "tool result": RESULTS["look_up"], "text of the caller": "One moment"}
    found = [name for name, text in wanted.items() if text in texts]
    missing = [name for name in wanted if name not in found]
    roles = [message.role for message in request.messages if message.role != "system"]
    how = "as it was" if "assistant" in roles else "rewritten for it"
    what = "everything" if not missing else f"{', '.join(found) or 'nothing'}; not: {', '.join(missing)}"
    return Outcome(joined([f"{what}, {how}", *history_problems(request)]), f"roles: {' '.join(roles)}")


async def next_message(peer: Peer) -> Outcome:
    """A second message after a handoff: who answers it."""
    script = script_of(Reply(calls=(Transfer(BILLING),)))
    error = await attempt(peer.converse(script, "first", "second"))
    second = next((each for each in script.requests if any("second" in seen.text for seen in each.messages)), None)
    if second is None:
        return Outcome("nobody is asked", error)
    reads_first = any("first" in message.text for message in second.messages)
    who = "the target" if second.agent == BILLING else "the first agent"
    return Outcome(who if reads_first else f"{who}, without the conversation", error)


class CrashScript(Script):
    """A model that charges unless it reads that this was done, also in a new process."""

    def respond(self, agent: str, messages: Sequence[Seen]) -> Reply:
        """Answer a request by what it contains."""
        super().respond(agent, messages)
        is_done = any("charged 80" in message.text for message in messages)
        return Reply(ANSWERS[agent]) if is_done else Reply(calls=(Call("charge", {"amount": 80}),))


def crash_script(folder: Path) -> Script:
    """Return the script of the crash."""
    return CrashScript({TRIAGE: answering(TRIAGE)}, folder)


async def crash(peer: Peer) -> Outcome:
    """A process that is killed after a tool acted, before that is recorded; then resumed."""
    with TemporaryDirectory(prefix="baton-contract-") as name:
        folder, module = Path(name), sys.modules[type(peer).__module__].__name__.rpartition(".")[2]
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.contract.probe", module]
        run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        first = await asyncio.to_thread(run, [*command, "start", name])
        script = crash_script(folder)
        if not script.effects:
            last = (first.stderr.strip() or "no output").splitlines()[-1]
            raise RuntimeError(f"the tool did not run: {last}")
        second = await asyncio.to_thread(run, [*command, "resume", name])
        status = (second.stdout.strip() or (second.stderr.strip() or "no output").splitlines()[-1]).splitlines()[-1]
        count = script.effects.count("charge")
        times = {1: "acts once", 2: "acts twice"}.get(count, f"acts {count} times")
        return Outcome(f"{times}; {status[:MAX_ERROR]}", f"exit codes {first.returncode}, {second.returncode}")


async def interrupt(peer: Peer) -> Outcome:
    """A tool that asks a person in its middle: whether the code before the question runs again."""
    script = script_of(Reply(calls=(Call("ask_first"),)))
    status: list[str] = []

    async def run() -> None:
        status.append(await peer.interrupt(script))

    error = await attempt(run())
    before, after = script.effects.count("before"), script.effects.count("after")
    if error or not after:
        return Outcome(f"does not resume; before the question {before}x", error or joined(status))
    again = "runs once" if before == 1 else f"runs {before} times"
    return Outcome(f"code before the question {again}", joined(status))


PROBES: dict[str, Callable[[Peer], Awaitable[Outcome]]] = {
    "two_tools_two_transfers": two_tools_two_transfers,
    "tool_beside_transfer": tool_beside_transfer,
    "two_transfers": two_transfers,
    "unknown_target": unknown_target,
    "ping_pong": ping_pong,
    "target_reads": target_reads,
    "next_message": next_message,
    "crash": crash,
    "interrupt": interrupt,
}


REPEATED, TIMES = ("two_tools_two_transfers", "tool_beside_transfer", "two_transfers"), 20
"""Probes whose outcome may vary from run to run, because calls of one response run at the same time."""


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Return one outcome for several runs; facts that vary are joined with "or"."""
    details = ", or ".join(sorted({each.detail for each in outcomes if each.detail}))
    split = [each.short.split("; ") for each in outcomes]
    if len({len(each) for each in split}) > 1:
        return Outcome(alternatives({each.short for each in outcomes}), details)
    return Outcome("; ".join(alternatives(set(row)) for row in zip(*split, strict=True)), details)


def alternatives(texts: set[str]) -> str:
    """Return the only text, or all of them, with what stands before a colon once."""
    first, *others = sorted(texts)
    title, colon, _ = first.partition(": ")
    if not all(other.startswith(title + colon) for other in others):
        title = colon = ""
    rest = [text.removeprefix(title + colon) for text in (first, *others)]
    return f"{title}{colon}{' or '.join(rest)}{' (varies)' if others else ''}"


async def observe(peer: Peer, name: str) -> Outcome:
    """Run a probe on a peer, several times if its outcome may vary."""
    if name in peer.missing:
        return Outcome("no such feature", peer.missing[name])
    times = TIMES if name in REPEATED else 1
    return merged([await PROBES[name](peer) for _ in range(times)])
