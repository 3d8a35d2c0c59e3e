"""What a workflow comes to, worked out in a few plain recursive functions: no log, no tasks, no replay."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec
from tests.laws.floor import REQUEST, answer_to, digest, lines_of
from tests.laws.trees import NOTES, Chat, Own, Tree, Workflow

from baton.messages import AssistantMessage

Path: TypeAlias = tuple[str, ...]


class Trouble(Exception):
    """An agent failed: the name of the error and what it says."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


@dataclass
class Line:
    """One message: who said it (nobody: the user), its text, its calls, and the tool if it is a result."""

    author: str | None
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    tool: str = ""

    def read_by(self, reader: str) -> str:
        """Its text as this agent reads it."""
        if self.author is None or self.author == reader:
            return self.text
        if self.tool:
            return f"For context: [{self.author}] `{self.tool}` tool returned result: {self.text}." if self.text else ""
        told = f" [{self.author}] said: {self.text}." if self.text else ""
        for name, arguments in self.calls:
            told += f" [{self.author}] called tool: `{name}` with arguments: {arguments}."
        return f"For context:{told}"


@dataclass
class End:
    """How a flow ended. `path` is that of whoever had the floor first."""

    action: Literal["exit", "break"] | None
    output: Any
    path: Path


@dataclass
class Oracle:
    """Says what must come of a tree. `spoken` has everything said, with its path, also what no history keeps."""

    spoken: Counter[tuple[Path, str]] = field(default_factory=Counter[tuple[Path, str]])
    steps: int = 0

    def flow(self, tree: Tree, lines: list[Line], values: dict[str, Any], after: Path) -> End:
        """An agent, and whomever it transfers to."""
        first = path = (*after, tree.name)
        action, output, breaks = self._turn(tree, lines, values, path)
        while action == "pass":
            assert not isinstance(tree, Workflow)
            assert tree.partner is not None
            tree = tree.partner
            path = (*path, tree.name)
            action, output, also_breaks = self._turn(tree, lines, values, path)
            breaks = breaks or also_breaks
        if action is None and breaks:
            action = "break"
        return End(action, output, first)

    def _turn(self, tree: Tree, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any, bool]:
        if isinstance(tree, Own):
            return self._own(tree, lines, values, path)
        if isinstance(tree, Chat):
            return self._chat(tree, lines, values, path)
        return (*getattr(self, f"_{tree.kind}")(tree, lines, values, path), False)

    def _own(self, plan: Own, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any, bool]:
        output: Any = None
        for deed, number in plan.deeds:
            key, text = f"k{number}", None
            match deed:
                case "say":
                    text = f"{plan.name} has {values.get(key)} and {values.get(NOTES)}"
                case "read":
                    text = f"{plan.name} read {digest([line.read_by(plan.name) for line in lines])}"
                case "step":
                    self.steps += 1
                    values[key] = f"step of {plan.name}"
                case "ask":
                    values[key] = answer_to(f"{plan.name}{number}")
                case "write":
                    values[key] = f"of {plan.name}"
                case "note":
                    values[NOTES] = plan.name
                case "delete":
                    values.pop(key, None)
                case "fail":
                    raise Trouble("Broken", plan.name)
            if text is not None:
                output = text
                self._say(lines, path, text)
        if plan.ending == "exit":
            return "exit", f"{plan.name} is over", False
        return {"none": None, "leave": "exit", "break": "break", "pass": "pass"}[plan.ending], output, False

    def _say(self, lines: list[Line], path: Path, text: str, calls: tuple[tuple[str, str], ...] = ()) -> None:
        lines.append(Line(path[-1], text, calls))
        self.spoken[path, text] += 1

    def _chat(self, plan: Chat, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any, bool]:
        breaks = False
        said = lines_of(plan)
        for each, message in zip(plan.calls, said, strict=False):
            match each:
                case "ask":
                    result = values["k0"] = answer_to(plan.name)
                case "break":
                    result, breaks = "The loop ends when you are done.", True
                case tree:
                    result = self._called(tree, values, path)
            self._add_turn(lines, path, message, result)
        last = said[-1]
        if plan.ending == "pass":
            assert plan.partner is not None
            self._add_turn(lines, path, last, f"successfully transferred to agent [{plan.partner.name}]")
            return "pass", None, breaks
        if plan.ending == "exit":
            self._add_turn(lines, path, last, "The task is ended.")
            return "exit", f"{plan.name} is over", breaks
        self._say(lines, path, f"{plan.name} is done")
        return None, f"{plan.name} is done", breaks

    def _add_turn(self, lines: list[Line], path: Path, message: AssistantMessage, result: str) -> None:
        (asked,) = message.tool_calls
        self._say(lines, path, "", ((asked.name, asked.arguments),))
        lines.append(Line(path[-1], result, tool=asked.name))

    def _called(self, tree: Tree, values: dict[str, Any], path: Path) -> str:
        """The tree as a tool: what it says stays inside, its values are the caller's."""
        lines = [Line(None, REQUEST)]
        try:
            end = self.flow(tree, lines, values, path)
        except Trouble as trouble:
            return f"[{tree.name}] failed: {trouble}"
        if end.output is None:
            return next((line.text for line in reversed(lines[1:]) if line.text and line.author), "done")
        return end.output if isinstance(end.output, str) else msgspec.json.encode(end.output).decode()

    def _sequence(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any]:
        return self._in_turn(tree, lines, values, path)[:2]

    def _in_turn(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any, Path]:
        output: Any = None
        for step in tree.steps:
            end = self.flow(step, lines, values, path)
            output, path = end.output, end.path
            if end.action is not None:
                return end.action, output, path
        return None, output, path

    def _loop(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any]:
        output: Any = None
        for _ in range(tree.rounds):
            action, output, path = self._in_turn(tree, lines, values, path)
            if action is not None:
                return (None if action == "break" else action), output
        return None, output

    def _parallel(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any]:
        ends: dict[str, End] = {}
        troubles: dict[str, Trouble] = {}
        joined: list[tuple[list[Line], _Noting]] = []
        for step in tree.steps:
            own_lines, own_values = list(lines), _Noting(values)
            try:
                ends[step.name] = self.flow(step, own_lines, own_values, path)
                joined.append((own_lines[len(lines) :], own_values))
            except Trouble as trouble:
                troubles[step.name] = trouble
                told = Line(None, f"[{step.name}] failed: {trouble}")
                joined.append(([told], _Noting({})))
        if troubles and tree.on_error == "collect":
            each = "; ".join(f"`{name}`: {trouble}" for name, trouble in troubles.items())
            raise Trouble("BranchesFailedError", f"{len(troubles)} of the branches of `{tree.name}` failed: {each}")
        for own_lines, own_values in joined:
            lines += own_lines
            for key in own_values.touched:
                if key not in own_values:
                    values.pop(key, None)
                elif key == NOTES:
                    values[key] = [*(values.get(key) or []), own_values[key]]
                else:
                    values[key] = own_values[key]
        for action in ("exit", "break"):
            ended = next((end for end in ends.values() if end.action == action), None)
            if ended is not None:
                return action, ended.output if action == "exit" else {name: end.output for name, end in ends.items()}
        return None, {name: end.output for name, end in ends.items()}


class _Noting(dict[str, Any]):
    """A copy of the values that notes what is written and removed."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.touched: dict[str, None] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.touched[key] = None
        super().__setitem__(key, value)

    def pop(self, key: str, default: Any = None) -> Any:
        self.touched[key] = None
        return super().pop(key, default)
