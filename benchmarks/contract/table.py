"""Tables of the recorded outcomes: the whole one, and the short one of the README."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.contract.environments import ENVIRONMENTS, REPOSITORY

RECORDED = Path(__file__).with_name("results.json")
START, END = "<!-- probes:start -->", "<!-- probes:end -->"
Results: TypeAlias = dict[str, Any]

TITLES = {
    "two_tools_two_transfers": "two tools and two transfers in one response",
    "tool_beside_transfer": "a tool beside a transfer",
    "two_transfers": "two transfers",
    "unknown_target": "a transfer to an agent that does not exist",
    "ping_pong": "two agents that transfer to each other for ever",
    "target_reads": "what the target reads",
    "next_message": "who answers the next message",
    "crash": "killed after a tool acted, before that is recorded; then resumed",
    "interrupt": "a tool that asks a person in its middle",
}
_SHORT = ("two_tools_two_transfers", "ping_pong", "next_message", "crash", "interrupt")
READMES: Mapping[str, Sequence[str]] = {
    "README.md": (
        "framework",
        "two tools and two transfers in one response",
        "endless ping-pong",
        "the next message is answered by",
        "killed after a tool acted, then resumed",
        "a question inside a tool",
    ),
    "README.zh.md": (
        "框架",
        "一次响应中有两个工具调用和两个移交",
        "无休止的互相移交",
        "下一条消息由谁回答",
        "工具执行后进程被杀死，然后恢复",
        "在工具内部向人提问",
    ),
}
"""The files that show the short table, and its headings."""


_CHINESE = (
    (r"(\d+)/(\d+) tools run", r"工具执行 \1/\2"),
    (r"(\d+)/(\d+) results read", r"读到结果 \1/\2"),
    (r"\binvalid history \((\d+) calls? without a result\)", r"历史无效（\1 个调用没有结果）"),
    (r"\bvalid history", "历史有效"),
    (r"control: (\w+) or (\w+) \(varies\)", r"控制权：\1 或 \2（不固定）"),
    (r"control: ", "控制权："),
    (r"not stopped within (\d+) model calls", r"\1 次模型调用内没有停止"),
    (r"stops after (\d+) model calls: ", r"\1 次模型调用后停止："),
    (r"no such feature", "没有这个功能"),
    (r"the target", "移交的目标"),
    (r"the first agent, without the conversation", "第一个智能体，没有对话历史"),
    (r"the first agent", "第一个智能体"),
    (r"acts once; ", "执行一次；"),
    (r"acts twice; ", "执行两次；"),
    (r"resumes, and asks a person whether it acted", "恢复，并询问人是否已经执行"),
    (r"no resume: the message is run again", "不恢复：重新处理这条消息"),
    (r"resumes from the checkpoint", "从检查点恢复"),
    (r"resumes the invocation", "恢复这次调用"),
    (r"resumes with the agent that was active", "由当时的智能体恢复"),
    (r"code before the question runs (\d+) times", r"问题之前的代码执行 \1 次"),
    (r"; ", "；"),
)
"""The outcomes of the short table in Chinese, as patterns that are applied in order."""


def in_chinese(outcome: str) -> str:
    """Translate an outcome; names of agents and exceptions stay as they are."""
    for pattern, chinese in _CHINESE:
        outcome = re.sub(pattern, chinese, outcome)
    return outcome


def load() -> Results:
    """Return the recorded results."""
    return json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {"date": "", "peers": {}}


def save(results: Results) -> None:
    """Record results, in the order of the environments."""
    results["peers"] = {name: results["peers"][name] for name in ENVIRONMENTS if name in results["peers"]}
    RECORDED.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def full_table(results: Results) -> str:
    """Return every probe with the outcome and details of each framework."""
    blocks: list[str] = []
    for probe, title in TITLES.items():
        lines = [f"{title}"]
        for name, peer in results["peers"].items():
            outcome = peer["probes"][probe]
            lines.append(f"  {name + ' ' + peer['version']:<26} {outcome['short']}")
            lines += [f"  {'':<26} ({outcome[key]})" for key in ("detail", "note") if key in outcome]
        blocks.append("\n".join(lines))
    versions = f"{results['date']}; how each team is made:"
    made = [f"  {name:<26} {peer['handoffs']}" for name, peer in results["peers"].items()]
    return "\n\n".join([*blocks, "\n".join([versions, *made])])


def short_table(results: Results, file: str) -> str:
    """Return the table of a README in Markdown, in its language, one row for each framework."""
    headings, translate = READMES[file], in_chinese if file == "README.zh.md" else str
    rows = [headings, ["---"] * len(headings)]
    for name, peer in results["peers"].items():
        outcomes = [translate(peer["probes"][probe]["short"]) for probe in _SHORT]
        rows.append([f"{name} {peer['version']}", *outcomes])
    return "\n".join(f"| {' | '.join(row)} |" if row[0] != "---" else f"|{'|'.join(row)}|" for row in rows)


def write_readmes(results: Results, folder: Path = REPOSITORY) -> list[str]:
    """Write the short table between the markers of each README; return the files that have none."""
    missing: list[str] = []
    for name in READMES:
        file = folder / name
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if START not in text or END not in text:
            missing.append(name)
            continue
        before, _, rest = text.partition(START)
        after = rest.partition(END)[2]
        table = short_table(results, name)
        file.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")
    return missing
