"""`baton voice`: a live conversation with lines of text, files or a terminal."""

import wave
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import Invoke, Write

from batonkit.cli.audio import read_wav
from batonkit.testing import speech

LIVE = """
from batonkit.realtime import *
"""
DESK = f"""{LIVE}
@tool
async def find_invoice(number: str) -> str:
    return f"{{number}}: paid twice"

billing = RealtimeAgent("Billing", description="Settles invoices.", tools=[find_invoice], handoffs=["Triage"])
triage = RealtimeAgent("Triage", description="Finds out who can help.", handoffs=[billing])
model = ScriptedRealtimeModel({{
    "Triage": [say("I get you the billing desk.", call("transfer_to_billing")), "Anything else?"],
    "Billing": [call("find_invoice", number="R-7"), "You have paid twice.", "It is on its way."],
}}, ms_per_word=100, hears=["My invoice?", "My money?"])
runner = RealtimeRunner(triage, model=model, settings=RealtimeSettings(turn_detection=None))
"""
ECHO = f"""{LIVE}
def told(request):
    return f"{{len(request.messages)}} messages, the last: {{request.messages[-1].content}}"

runner = RealtimeRunner(RealtimeAgent("Echo"), model=ScriptedRealtimeModel([told], cycle=True))
"""


def speech_file(path: Path, words: str, *, rate: int = 24_000) -> str:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(speech(words))
    return str(path)


def test_each_line_is_sent_after_the_previous_answer(write: Write, baton: Invoke) -> None:
    write(DESK)
    result = baton("voice", "desk:runner", input="My invoice?\n\nMy money?\n/handoff Triage\n")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "● Triage",
        "I get you the billing desk.",
        "  → Billing",
        "● Billing",
        '  ▸ find_invoice(number="R-7")',
        "  ◂ find_invoice: R-7: paid twice",
        "You have paid twice.",
        "It is on its way.",
        "  → Triage",
        "● Triage",
        "Anything else?",
        "total: 5 model calls · 64 tokens in, 19 out",
    ]


def test_wav_input_and_output(write: Write, baton: Invoke, tmp_path: Path) -> None:
    write(DESK)
    first = speech_file(tmp_path / "first.wav", "one two three", rate=16_000)
    second = speech_file(tmp_path / "second.wav", "four")
    files = ["--wav-in", first, "--wav-in", second, "--wav-out", "out.wav", "--wav-speed", "0"]
    told = baton("voice", "desk:runner", *files, input="/handoff Triage\n").output.splitlines()
    assert [line for line in told if line.startswith("you › ")] == ["you › My invoice?", "you › My money?"]
    assert told[-1] == "recorded 1.7 s to out.wav"
    expected_text = "I get you the billing desk. You have paid twice. It is on its way. Anything else?"
    assert read_wav(Path("out.wav")) == speech(expected_text, ms_per_word=100)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("y", "30 paid"),
        ("no, too much", "was not approved: too much"),
        ("", "unclear answer; after /answer write y"),
    ],
)
def test_interrupts_are_answered_during_the_conversation(write: Write, baton: Invoke, answer: str, told: str) -> None:
    write(
        f"""{LIVE}
@tool(needs_approval=True)
def refund(amount: int) -> str:
    return f"{{amount}} paid"
model = ScriptedRealtimeModel([call("refund", amount=30), "Meanwhile: hello.", "That is that."])
runner = RealtimeRunner(RealtimeAgent("Desk", tools=[refund]), model=model)
"""
    )
    output = baton("voice", "desk:runner", input=f"refund me\nhello?\n/answer {answer}\n/answer n\n").output
    assert "? Desk: allow refund(amount=30)?" in output
    assert "Meanwhile: hello." in output.splitlines()
    assert told in output
    assert "That is that." in output
    assert ("there is no open interrupt" in output) == bool(answer)


def test_unanswered_interrupt_is_answered_in_a_later_session(write: Write, baton: Invoke) -> None:
    write(
        f"""{LIVE}
@tool
async def survey(ctx: RunContext) -> str: return repr(await ctx.interrupt("Which colour?"))
runner = RealtimeRunner(RealtimeAgent("Desk", tools=[survey]), model=ScriptedRealtimeModel([call("survey")]))
later = RealtimeRunner(RealtimeAgent("Desk", tools=[survey]), model=ScriptedRealtimeModel(["Thanks."]))
"""
    )
    store_options = ["--store", "calls.db", "--thread", "u42"]
    first = baton("voice", "desk:runner", *store_options, input="ask me\n").output
    assert "not answered; the run stays suspended" in first
    second = baton("voice", "desk:later", *store_options, input="/answer blue\n").output.splitlines()
    assert second[0] == "thread u42, 1 run so far"
    assert second[1].startswith("resuming run ")
    assert "  ◂ survey: 'blue'" in second
    assert "Thanks." in second


def test_thread_continues_with_its_history(write: Write, baton: Invoke) -> None:
    write(ECHO)
    store_options = ["--store", "calls.db", "--thread", "u42"]
    assert "1 messages, the last: hello" in baton("voice", "desk:runner", *store_options, input="hello\n").output
    assert "3 messages, the last: again" in baton("voice", "desk:runner", *store_options, input="again\n").output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/handoff Unknown", "`Triage` cannot transfer to `Unknown`; it can reach: "),
        ("/handoff", "/handoff needs the name of an agent"),
        ("/sing", "unknown command /sing; see /help"),
        ("/answer y", "there is no open interrupt"),
        ("/help", "  /handoff NAME     hand control to another agent"),
        ("/interrupt", ""),
    ],
)
def test_command_errors_do_not_end_the_conversation(write: Write, baton: Invoke, line: str, told: str) -> None:
    write(DESK)
    result = baton("voice", "desk:runner", input=f"{line}\nMy invoice?\n")
    assert result.exit_code == 0
    assert told in result.output
    assert "You have paid twice." in result.output


@pytest.mark.parametrize("farewell", ["exit", "/quit", "QUIT"])
def test_farewell_words_end_the_conversation(write: Write, baton: Invoke, farewell: str) -> None:
    write(ECHO)
    assert baton("voice", "desk:runner", input=f"{farewell}\nhello\n").output == "● Echo\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["desk:agent"], 2, "is for text (type Agent); use `baton chat desk:agent`"),
        (["desk:live"], 2, "`desk:live` needs a realtime model; use --model openai:gpt-realtime"),
        (["desk:live", "--model", "abacus"], 1, "`abacus` does not name a realtime model"),
        (["desk:runner", "--model", "a:b", "--voice", "ash"], 2, "leave out --model and --voice, or name the agent"),
        (["desk:live", "--model", "a:b", "--thread", "u42"], 2, "pass --store as well"),
        (
            ["desk:runner", "--text-only", "--wav-out", "out.wav"],
            2,
            "--text-only cannot be combined with",
        ),
        (["desk:runner", "--wav-in", "nothing.wav"], 2, "--wav-in: there is no file `nothing.wav`"),
        (
            ["desk:phone", "--wav-out", "out.wav"],
            2,
            "`desk:phone` expects g711_ulaw, but this command supports only pcm16",
        ),
        (["desk:lost"], 1, "error: the line is dead"),
    ],
)
def test_invalid_arguments_are_one_line(
    write: Write, baton: Invoke, arguments: list[str], code: int, told: str
) -> None:
    write(
        f"""{ECHO}
from batonkit.errors import ModelConnectionError
agent = Agent("Desk")
live = RealtimeAgent("Live")
model = ScriptedRealtimeModel([])
phone = RealtimeRunner(
    live, model=model, settings=RealtimeSettings(input_format="g711_ulaw", output_format="g711_ulaw")
)
dead = ScriptedRealtimeModel([])
dead.fail_to_connect(ModelConnectionError("the line is dead"))
lost = RealtimeRunner(live, model=dead, max_reconnects=0)
"""
    )
    result = baton("voice", *arguments, input="hello\n")
    assert (result.exit_code, "Traceback" in result.output) == (code, False)
    assert told in result.output


@pytest.mark.parametrize("verb", [["chat"], ["run"], ["mcp"], ["serve"]])
def test_realtime_targets_are_referred_to_voice(write: Write, baton: Invoke, verb: list[str]) -> None:
    write(ECHO)
    result = baton(*verb, "desk:runner", *(["hello"] if verb == ["run"] else []))
    assert result.exit_code == 2
    assert "is a RealtimeRunner, for live conversations; use `baton voice desk:runner`" in result.output


def test_lost_connection_is_reconnected_and_shown(write: Write, baton: Invoke) -> None:
    write(
        f"""{LIVE}
from batonkit.errors import ModelConnectionError
steps = [ScriptedStream("Let me", ModelConnectionError("the cable is out")), "Here I am again."]
runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps), reconnect_delay=0.0)
gone = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps[:1]), max_reconnects=0)
"""
    )
    told = baton("voice", "desk:runner", input="hello\n").output.splitlines()
    assert "  … lost the connection (the cable is out); attempt 1" in told
    assert "  … reconnected" in told
    assert "Here I am again." in told
    lost = baton("voice", "desk:gone", input="hello\n")
    assert lost.exit_code == 1
    assert "lost its connection, and 0 reconnect attempts failed: the cable is out" in lost.output


def test_the_help_lists_commands_and_options(baton: Any) -> None:
    told = baton("voice", "--help").output
    for word in ("/handoff NAME", "/interrupt", "/answer", "--wav-in", "--wav-out", "--wav-speed", "--base-url"):
        assert word in told
