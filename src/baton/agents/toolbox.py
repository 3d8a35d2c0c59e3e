"""An agent's tools, compiled: by name, and as the model sees them."""

from collections.abc import Sequence

from ..errors import SetupError
from ..messages import ToolCall, ToolSpec
from ..tools import Tool, tool_effect

EXIT_TOOL = "exit"

_EXIT_SPEC = ToolSpec(
    EXIT_TOOL,
    "End the whole task now with this final result. Use it only when nothing is left to do for anybody.",
    {
        "type": "object",
        "properties": {
            "final_result": {"type": "string", "description": "The final result, as the user will read it."}
        },
        "required": ["final_result"],
        "additionalProperties": False,
    },
    strict=True,
)


class ToolTable:
    """The tools of one agent. `names` is what the model is told when it calls something else."""

    __slots__ = ("_acting", "by_name", "has_exit", "names", "specs")

    def __init__(self, owner: str, tools: Sequence[Tool], *, has_exit: bool) -> None:
        self.by_name: dict[str, Tool] = {}
        self.has_exit = has_exit
        specs = [tool.spec for tool in tools]
        if has_exit:
            specs.append(_EXIT_SPEC)
        seen: set[str] = set()
        for spec in specs:
            if spec.name in seen:
                raise SetupError(f"`{owner}` has two tools called `{spec.name}`; give one of them another name")
            seen.add(spec.name)
        for tool in tools:
            self.by_name[tool.spec.name] = tool
        self._acting = frozenset(tool.spec.name for tool in tools if tool_effect(tool) != "read")
        self.specs = tuple(specs)
        self.names = tuple(spec.name for spec in specs)

    def only_reads(self, calls: Sequence[ToolCall]) -> bool:
        """Whether none of these calls does anything outside: then they may be made before they are on record."""
        return not any(call.name in self._acting for call in calls)
