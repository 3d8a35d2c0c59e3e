"""The edges out of one agent, compiled: what its model is shown, and what becomes of a call.

An agent reached through `sub_agents` is asked for with one tool that takes a name; an agent in `handoffs` has a
tool of its own. Both end in the same Route.

What a model is told about the agents it may transfer to, in English and in Chinese.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import quote_names
from ..messages import ToolCall, ToolSpec
from .base import Handoff, HandoffTarget

PromptLanguage: TypeAlias = Literal["en", "zh"]

_ENGLISH = """\
You work in a team. These agents can take over the conversation from you:
{agents}

Decide first who is best suited to deal with the request:
- If it is you, answer it yourself.
- If it is one of the agents above, call `{tool}` with that agent's name. When you transfer, output nothing but \
the call: the other agent sees the whole conversation."""

_CHINESE = """\
你是团队的一员。以下智能体可以从你这里接手对话：
{agents}

先判断由谁来处理当前请求最合适：
- 如果最合适的是你，请直接回答。
- 如果是上面某个智能体，请调用 `{tool}` 并给出它的名称。移交时只输出该调用，不要输出其他内容：对方能看到完整的对话。"""

_TOOL = {
    "en": "Give the conversation to another agent of your team, who then deals with it.",
    "zh": "把对话移交给团队中的另一个智能体，由它继续处理。",
}

_EXAMPLES = {"en": "For example: {examples}", "zh": "例如：{examples}"}

_PARAMETER = {"en": "The name of the agent that takes over.", "zh": "接手对话的智能体的名称。"}


def transfer_section(targets: Sequence[tuple[str, str]], tool: str, *, language: PromptLanguage) -> str:
    """The part of the instructions that lists the agents (name, description) and says when to transfer."""
    agents = "\n".join(f"- {name}: {description}" if description else f"- {name}" for name, description in targets)
    return (_CHINESE if language == "zh" else _ENGLISH).format(agents=agents, tool=tool)


def with_examples(description: str, examples: Sequence[str], *, language: PromptLanguage) -> str:
    """What is said about an agent, with questions that are for it, if it gives any."""
    if not examples:
        return description
    quoted = " ".join(f"“{example}”" for example in examples)
    return f"{description} {_EXAMPLES[language].format(examples=quoted)}".lstrip()


def tool_description(language: PromptLanguage) -> str:
    """What the transfer tool says of itself."""
    return _TOOL[language]


def parameter_description(language: PromptLanguage) -> str:
    """What the transfer tool says of its parameter."""
    return _PARAMETER[language]


TRANSFER_TOOL = "transfer_to_agent"


_NO_INPUT: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class Route(Struct, frozen=True):
    """One edge. `tool` is "" for an edge that only code follows; `result` is what the model that asked is told."""

    target: str
    handoff: Handoff
    description: str = ""
    tool: str = ""
    result: str = ""
    is_tree: bool = False
    """Whether it is between parent and child, and asked for with the one tool that takes a name."""
    examples: tuple[str, ...] = ()
    """Questions that are for the target."""
    accepts: Any = None
    """The target's say in whether it takes the conversation, if it wants one."""
    is_plain: bool = True
    """Whether asking for it is enough: no input to check, nobody to ask, nothing to call back."""
    is_straight: bool = True
    """Whether nothing happens on the way: control stays where it goes, and the target reads as it always does."""


def tree_route(target: HandoffTarget) -> Route:
    """An edge between parent and child."""
    result = f"successfully transferred to agent [{target.name}]"
    accepts = getattr(target, "accepts", None)
    return Route(
        target.name,
        Handoff(agent=target),
        target.description,
        TRANSFER_TOOL,
        result,
        is_tree=True,
        examples=_examples_of(target),
        accepts=accepts,
        is_plain=accepts is None,
    )


def handoff_route(handoff: Handoff, target: HandoffTarget, *, tool: str) -> Route:
    """An edge with a tool of its own; with "" for one that only code follows."""
    accepts = getattr(target, "accepts", None)
    asks_nothing = handoff.input_type is None and handoff.on_handoff is None and handoff.needs_approval is False
    return Route(
        target.name,
        handoff,
        target.description,
        tool,
        msgspec.json.encode({"assistant": target.name}).decode(),
        examples=_examples_of(target),
        accepts=accepts,
        is_plain=asks_nothing and accepts is None,
        is_straight=handoff.return_to is None and handoff.history is None and handoff.input_filter is None,
    )


class TransferRefusal(Struct, frozen=True):
    """A call that asks for a transfer nobody can follow, and what to tell the model."""

    wish: str
    text: str


class _TransferArguments(Struct):
    agent_name: str


_read_wish = msgspec.json.Decoder(_TransferArguments).decode


class Routes:
    """All edges out of one agent of one team."""

    __slots__ = ("_by_name", "_by_tool", "_tree", "conditional", "owner", "reachable", "section", "specs")

    def __init__(self, owner: str, routes: Sequence[Route], *, language: PromptLanguage = "en") -> None:
        self.owner = owner
        shown = [route for route in routes if route.handoff.offered_to_model]
        tree = [route for route in shown if route.is_tree]
        self._tree = {route.target: route for route in tree}
        self._by_tool = {route.tool: route for route in shown if route.tool and not route.is_tree}
        self._by_name: dict[str, Route] = {}
        for route in routes:
            self._by_name.setdefault(route.target, route)
        self.reachable = tuple(self._by_name)
        self.conditional = tuple(route for route in shown if route.handoff.is_enabled is not True)
        """Edges that may be switched off."""
        self.specs = self._make_specs(language)
        self.section = ""
        if tree:
            names = [(route.target, _told(route, language)) for route in tree]
            self.section = transfer_section(names, TRANSFER_TOOL, language=language)

    def wanted_by(self, call: ToolCall) -> Route | TransferRefusal | None:
        """The edge a call asks for, or why it cannot be followed; None if it asks for no transfer."""
        if call.name != TRANSFER_TOOL or not self._tree:
            return self._by_tool.get(call.name)
        try:
            wish = _read_wish(call.arguments).agent_name
        except msgspec.MsgspecError:
            wanted = 'arguments must be {"agent_name": "…"}'
            return TransferRefusal(
                call.arguments, f"Not transferred: {wanted}; you can transfer to: {quote_names([*self._tree])}."
            )
        route = self._tree.get(wish)
        if route is None:
            return TransferRefusal(
                wish, f"Not transferred: there is no `{wish}`; you can transfer to: {quote_names([*self._tree])}."
            )
        return route

    def edge(self, target: str, via: str) -> Route | None:
        """The edge to this agent that this tool stands for; with "" the first one there is.

        None if there is none, or if the tool is a function that returned the agent: that goes by no edge's rules.
        """
        if not via:
            return self._by_name.get(target)
        if via == TRANSFER_TOOL and target in self._tree:
            return self._tree[target]
        return self._by_tool.get(via)

    def _make_specs(self, language: PromptLanguage) -> tuple[ToolSpec, ...]:
        specs = [_spec_of(route, language) for route in self._by_tool.values()]
        if self._tree:
            parameter = {
                "type": "string",
                "enum": list(self._tree),
                "description": parameter_description(language),
            }
            schema = {
                "type": "object",
                "properties": {"agent_name": parameter},
                "required": ["agent_name"],
                "additionalProperties": False,
            }
            specs.insert(0, ToolSpec(TRANSFER_TOOL, tool_description(language), schema, strict=True))
        return tuple(specs)


def _examples_of(target: HandoffTarget) -> tuple[str, ...]:
    return tuple(getattr(target, "examples", ()))


def _told(route: Route, language: PromptLanguage) -> str:
    return with_examples(route.description, route.examples, language=language)


def _spec_of(route: Route, language: PromptLanguage) -> ToolSpec:
    handoff, reader = route.handoff, route.handoff._input_parser
    description = handoff.tool_description_override
    if description is None:
        description = f"Handoff to the {route.target} agent to handle the request. {_told(route, language)}".rstrip()
    schema = reader.schema if reader is not None else _NO_INPUT
    return ToolSpec(route.tool, description, schema, strict=True)
