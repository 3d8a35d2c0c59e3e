"""Compute the expected result of a workflow with plain recursion: no log, no tasks, no replay."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec
from tests.laws.projections import end_sentence
from tests.laws.trees import NOTES, CustomAgent, ModelAgent, Tree, Workflow
from tests.laws.workflow_teams import REQUEST, answer_to, digest, responses_of

from batonkit.messages import AssistantMessage

Path: TypeAlias = tuple[str, ...]


class AgentFailure(Exception):
    """The failure of an agent: the name of the error and its message."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


@dataclass
class Line:
    """One message: its author (None for the user), text and calls, and the tool if it is a result."""

    author: str | None
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    tool: str = ""

    def read_by(self, reader: str) -> str:
        """Return the text that this agent reads."""
        if self.author is None or self.author == reader:
            return self.text
        if self.tool:
            said = end_sentence(self.text) if self.text else ""
            return f"For context: [{self.author}] `{self.tool}` tool returned result: {said}" if said else ""
        text = f" [{self.author}] said: {end_sentence(self.text)}" if self.text else ""
        for name, arguments in self.calls:
            text += f" [{self.author}] called tool: `{name}` with arguments: {arguments}."
        return f"For context:{text}"


@dataclass
class End:
    """The end of a flow. `path` is the path of its first agent."""

    action: Literal["exit", "break"] | None
    output: Any
    path: Path


@dataclass
class Oracle:
    """The expected result of a tree. `responses_by_path` also has responses that no history contains."""

    responses_by_path: Counter[tuple[Path, str]] = field(default_factory=Counter[tuple[Path, str]])
    steps: int = 0

    def flow(self, tree: Tree, lines: list[Line], values: dict[str, Any], after: Path) -> End:
        """Run an agent and the agents that it transfers to."""
        first = path = (*after, tree.name)
        action, output, breaks = self._turn(tree, lines, values, path)
        while action == "transfer":
            assert not isinstance(tree, Workflow)
            assert tree.partner is not None
            tree = tree.partner
            path = (*path, tree.name)
            action, said, also_breaks = self._turn(tree, lines, values, path)
            output = output if said is None else said
            breaks = breaks or also_breaks
        if action is None and breaks:
            action = "break"
        return End(action, output, first)

    def _turn(self, tree: Tree, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any, bool]:
        if isinstance(tree, CustomAgent):
            return self._custom_agent(tree, lines, values, path)
        if isinstance(tree, ModelAgent):
            return self._model_agent(tree, lines, values, path)
        match tree.kind:
            case "sequence":
                action, output = self._sequence(tree, lines, values, path)
            case "loop":
                action, output = self._loop(tree, lines, values, path)
            case "parallel":
                action, output = self._parallel(tree, lines, values, path)
        return action, output, False

    def _custom_agent(
        self, plan: CustomAgent, lines: list[Line], values: dict[str, Any], path: Path
    ) -> tuple[Any, Any, bool]:
        output: Any = None
        for operation, number in plan.operations:
            key, text = f"k{number}", None
            match operation:
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
                    raise AgentFailure("PlannedError", plan.name)
            if text is not None:
                output = text
                self._say(lines, path, text)
        if plan.ending == "exit":
            return "exit", self._say_result(plan, lines, path), False
        return (
            {"none": None, "exit empty": "exit", "break": "break", "transfer": "transfer"}[plan.ending],
            output,
            False,
        )

    def _say(self, lines: list[Line], path: Path, text: str, calls: tuple[tuple[str, str], ...] = ()) -> None:
        lines.append(Line(path[-1], text, calls))
        self.responses_by_path[path, text] += 1

    def _model_agent(
        self, plan: ModelAgent, lines: list[Line], values: dict[str, Any], path: Path
    ) -> tuple[Any, Any, bool]:
        breaks = False
        responses = responses_of(plan)
        for each, message in zip(plan.calls, responses, strict=False):
            match each:
                case "ask":
                    result = values["k0"] = answer_to(plan.name)
                case "break":
                    result, breaks = "The loop ends when you are done.", True
                case tree:
                    result = self._run_as_tool(tree, values, path)
            self._add_turn(lines, path, message, result)
        last = responses[-1]
        if plan.ending == "transfer":
            assert plan.partner is not None
            self._add_turn(lines, path, last, f"successfully transferred to agent [{plan.partner.name}]")
            return "transfer", None, breaks
        if plan.ending == "exit":
            self._add_turn(lines, path, last, "The task is ended.")
            return "exit", self._say_result(plan, lines, path), breaks
        self._say(lines, path, f"{plan.name} is done")
        return None, f"{plan.name} is done", breaks

    def _say_result(self, plan: CustomAgent | ModelAgent, lines: list[Line], path: Path) -> str:
        """Say what an exit gives as the result."""
        result = f"{plan.name} is over"
        self._say(lines, path, result)
        return result

    def _add_turn(self, lines: list[Line], path: Path, message: AssistantMessage, result: str) -> None:
        (requested,) = message.tool_calls
        self._say(lines, path, "", ((requested.name, requested.arguments),))
        lines.append(Line(path[-1], result, tool=requested.name))

    def _run_as_tool(self, tree: Tree, values: dict[str, Any], path: Path) -> str:
        """Run a tree as a tool: its messages stay inside, its values are the caller's."""
        lines = [Line(None, REQUEST)]
        try:
            end = self.flow(tree, lines, values, path)
        except AgentFailure as failure:
            return f"[{tree.name}] failed: {failure}"
        if end.output is None:
            return next((line.text for line in reversed(lines[1:]) if line.text and line.author), "done")
        return end.output if isinstance(end.output, str) else msgspec.json.encode(end.output).decode()

    def _sequence(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any]:
        return self._run_steps(tree, lines, values, path)[:2]

    def _run_steps(
        self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path
    ) -> tuple[Any, Any, Path]:
        output: Any = None
        for step in tree.steps:
            end = self.flow(step, lines, values, path)
            output, path = output if end.output is None else end.output, end.path
            if end.action is not None:
                return end.action, output, path
        return None, output, path

    def _loop(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any]:
        output: Any = None
        for _ in range(tree.rounds):
            action, said, path = self._run_steps(tree, lines, values, path)
            output = output if said is None else said
            if action is not None:
                return (None if action == "break" else action), output
        return None, output

    def _parallel(self, tree: Workflow, lines: list[Line], values: dict[str, Any], path: Path) -> tuple[Any, Any]:
        ends: dict[str, End] = {}
        failures: dict[str, AgentFailure] = {}
        joined: list[tuple[list[Line], _TrackedValues]] = []
        for step in tree.steps:
            own_lines, own_values = list(lines), _TrackedValues(values)
            try:
                ends[step.name] = self.flow(step, own_lines, own_values, path)
                joined.append((own_lines[len(lines) :], own_values))
            except AgentFailure as failure:
                failures[step.name] = failure
                text = Line(None, f"[{step.name}] failed: {failure}")
                joined.append(([text], _TrackedValues({})))
        if failures and tree.on_error == "collect":
            each = "; ".join(f"`{name}`: {failure}" for name, failure in failures.items())
            raise AgentFailure(
                "BranchesFailedError", f"{len(failures)} of the branches of `{tree.name}` failed: {each}"
            )
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


class _TrackedValues(dict[str, Any]):
    """A copy of the values that records the keys written or removed."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.touched: dict[str, None] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.touched[key] = None
        super().__setitem__(key, value)

    def pop(self, key: str, default: Any = None) -> Any:
        self.touched[key] = None
        return super().pop(key, default)
