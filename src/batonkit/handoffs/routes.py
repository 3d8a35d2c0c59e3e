"""Compiled edges of one agent: the tools and instructions its model sees, and the route that a call asks for.

`sub_agents` share one tool that takes a name; every agent in `handoffs` has a tool of its own. Both become a `Route`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._checks import check_arguments
from ..errors import SetupError, quote_names
from ..messages import ToolCall, ToolSpec, object_schema
from ..messages.messages import INVALID_JSON
from .declaration import NO_INPUT, Handoff, HandoffTarget, PromptLanguage, default_tool_description, describe_target

_SECTION = {
    "en": """\
You work in a team. These agents can take over the conversation from you:
{agents}

Decide first who is best suited to deal with the request:
- If it is you, answer it yourself.
- If it is one of the agents above, call `{tool}` with that agent's name. When you transfer, output nothing but \
the call: the other agent sees the whole conversation.""",
    "zh": """\
你是团队的一员。以下智能体可以从你这里接手对话：
{agents}

先判断由谁来处理当前请求最合适：
- 如果最合适的是你，请直接回答。
- 如果是上面某个智能体，请调用 `{tool}` 并给出它的名称。移交时只输出该调用，不要输出其他内容：对方能看到完整的对话。""",
}

_TOOL = {
    "en": "Give the conversation to another agent of your team, who then deals with it.",
    "zh": "把对话移交给团队中的另一个智能体，由它继续处理。",
}

_PARAMETER = {"en": "The name of the agent that takes over.", "zh": "接手对话的智能体的名称。"}


TRANSFER_TOOL = "transfer_to_agent"
"""The name of the tool that transfers to a sub-agent or parent."""

RECOMMENDED_PROMPT_PREFIX = """\
# Working with other agents
You are one of several agents that share this conversation; each has instructions and tools of its own. If another \
agent is better suited to deal with the request, give it the conversation with a handoff tool, usually called \
`transfer_to_<agent_name>`. The user talks to one assistant: do not mention handoffs or other agents."""
"""Instructions for agents with handoffs, to put before their own."""


@check_arguments
def prompt_with_handoff_instructions(prompt: str) -> str:
    """Put general instructions about handoffs before the instructions of an agent.

    An agent with `sub_agents` gets a section about transfers anyway; this is for agents with `handoffs`.

    Args:
        prompt: The agent's own instructions.
    """
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}" if prompt else RECOMMENDED_PROMPT_PREFIX


class Route(Struct, frozen=True):
    """One compiled edge."""

    target: str
    """The name of the target."""
    handoff: Handoff
    """The handoff that it was made of."""
    description: str = ""
    """The target's description."""
    tool: str = ""
    """The name of the tool that asks for it; empty for an edge that only code follows."""
    result: str = ""
    """The result that the call receives when the transfer is followed."""
    is_tree: bool = False
    """True if it connects parent and child, and is asked for with the shared tool."""
    examples: tuple[str, ...] = ()
    """Example questions for the target."""
    accepts: Any = None
    """The target's `accepts` callback."""
    is_plain: bool = True
    """True if it has neither input, approval, callback nor `accepts`."""
    is_straight: bool = True
    """True if it has neither `return_to`, `history` nor `input_filter`."""
    history: Any = None
    """The compiled history policy of the handoff."""
    id: str = ""
    """Identifies it among the edges of its agent: the name of its tool, numbered if several edges share the name."""


def make_route(handoff: Handoff, target: HandoffTarget, *, tool: str, is_tree: bool = False) -> Route:
    """Compile an edge."""
    accepts = getattr(target, "accepts", None)
    tree_result = f"successfully transferred to agent [{target.name}]"
    asks_nothing = handoff.input_type is None and handoff.on_handoff is None and handoff.needs_approval is False
    return Route(
        target.name,
        handoff,
        target.description,
        tool,
        tree_result if is_tree else msgspec.json.encode({"assistant": target.name}).decode(),
        is_tree,
        tuple(getattr(target, "examples", ())),
        accepts,
        is_plain=asks_nothing and accepts is None,
        is_straight=handoff.return_to is None and handoff.history is None and handoff.input_filter is None,
        id=tool,
    )


class TransferRefusal(Struct, frozen=True):
    """A call that asks for a transfer that cannot be followed."""

    requested: str
    """The agent name that the call contains; all its arguments if they are invalid."""
    text: str
    """The error text for the model."""


class _TransferArguments(Struct):
    agent_name: str


_parse_arguments = msgspec.json.Decoder(_TransferArguments).decode


class Routes:
    """The routes of one agent in one team."""

    __slots__ = ("_by_id", "_by_name", "_by_tool", "_tree", "conditional", "owner", "reachable", "section", "specs")

    def __init__(self, owner: str, routes: Sequence[Route], *, language: PromptLanguage = "en") -> None:
        self.owner = owner
        shown = [route for route in routes if route.handoff.offered_to_model]
        tree = [route for route in shown if route.is_tree]
        self._tree = {route.target: route for route in tree}
        self._by_tool: dict[str, list[Route]] = {}
        for route in shown:
            if route.tool and not route.is_tree:
                same = self._by_tool.setdefault(route.tool, [])
                same.append(route if not same else replace(route, id=f"{route.tool}#{len(same) + 1}"))
        self._by_id = {route.id: route for same in self._by_tool.values() for route in same}
        self._by_name: dict[str, Route] = {}
        for route in routes:
            self._by_name.setdefault(route.target, route)
        self.reachable = tuple(self._by_name)
        self.conditional = tuple(route for route in self._by_id.values() if route.handoff.is_enabled is not True)
        """Routes with an `is_enabled` condition."""
        self.specs = self._make_specs(language)
        self.section = ""
        if tree:
            self.section = _transfer_section(tree, language)

    def match(self, call: ToolCall, disabled: Sequence[str] = ()) -> Route | TransferRefusal | None:
        """Return the route that a call asks for, or why it cannot be followed; None for other calls."""
        if call.name != TRANSFER_TOOL or not self._tree:
            if call.name not in self._by_tool:
                return None
            same = self._by_tool[call.name]
            if same[0].id not in disabled:
                return same[0]
            return next((route for route in same if route.id not in disabled), same[0])
        try:
            requested = _parse_arguments(call.arguments).agent_name
        except INVALID_JSON:
            return self._refuse(call.arguments, 'arguments must be {"agent_name": "…"}')
        return self._tree.get(requested) or self._refuse(requested, f"there is no `{requested}`")

    def _refuse(self, requested: str, reason: str) -> TransferRefusal:
        text = f"Not transferred: {reason}; you can transfer to: {quote_names([*self._tree])}."
        return TransferRefusal(requested, text)

    def offered(self) -> tuple[Route, ...]:
        """Return the routes that the model can ask for."""
        return (*self._tree.values(), *self._by_id.values())

    def enabled_specs(self, disabled: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs without those of disabled routes.

        Raises:
            SetupError: Two routes with the same tool are enabled.
        """
        for same in self._by_tool.values():
            enabled = [f"to `{route.target}`" for route in same if route.id not in disabled]
            if len(enabled) > 1:
                both = f"two handoffs enabled at once that are called `{same[0].tool}`: {' and '.join(enabled)}"
                advice = "rename one with tool_name_override=…, or enable one at a time with is_enabled=…"
                raise SetupError(f"`{self.owner}` has {both}; {advice}")
        tree, own = (self.specs[:1], self.specs[1:]) if self._tree else ((), self.specs)
        pairs = zip(self._by_id, own, strict=True)
        return (*tree, *[spec for id, spec in pairs if id not in disabled])

    def edge(self, target: str, via: str) -> Route | None:
        """Return the route with this id to an agent; with `""` the first one.

        None if there is none, or if the tool is a function that returned the agent: no edge's options apply then.
        """
        if not via:
            return self._by_name.get(target)
        if via == TRANSFER_TOOL and target in self._tree:
            return self._tree[target]
        return self._by_id.get(via)

    def _make_specs(self, language: PromptLanguage) -> tuple[ToolSpec, ...]:
        specs = [_to_spec(route, language) for route in self._by_id.values()]
        if self._tree:
            parameter = {"type": "string", "enum": list(self._tree), "description": _PARAMETER[language]}
            schema = object_schema({"agent_name": parameter})
            specs.insert(0, ToolSpec(TRANSFER_TOOL, _TOOL[language], schema, strict=True))
        return tuple(specs)


def _transfer_section(routes: Sequence[Route], language: PromptLanguage) -> str:
    """Write the part of the instructions that lists the agents and says when to transfer."""
    described = [(route.target, _describe(route, language)) for route in routes]
    agents = "\n".join(f"- {name}: {description}" if description else f"- {name}" for name, description in described)
    return _SECTION[language].format(agents=agents, tool=TRANSFER_TOOL)


def _describe(route: Route, language: PromptLanguage) -> str:
    return describe_target(route.description, route.examples, language)


def _to_spec(route: Route, language: PromptLanguage) -> ToolSpec:
    handoff = route.handoff
    parser = handoff._input_parser
    default = default_tool_description(route.target, _describe(route, language))
    description = handoff.tool_description_override or default
    schema = parser.schema if parser is not None else NO_INPUT
    return ToolSpec(route.tool, description, schema, strict=True)
