"""The composition of layers around the calls of one agent, once per agent and runner.

Outermost first: hooks, the record, guardrails, middleware, and the call itself with its span.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from ..log import AgentResponded
from .agent_context import RunConfig
from .calls import call_tool, record_tool_call, trace_tool_call
from .hook_layers import tell_of_model_call, tell_of_tool_call
from .hooks import AgentHooks, HookDispatcher
from .invocations import ModelCall, ToolInvocation
from .middleware import Middleware, build_stack
from .middleware_layers import call_in_own_scope, surround
from .model_calls import ask, record_response, require_content
from .seam import AgentCalls, CallOutcome, Handler, Layer, LayerFunction, compose


class SurroundedAgent(Protocol):
    """The parts of an agent that surround its calls."""

    @property
    def name(self) -> str: ...
    @property
    def hooks(self) -> AgentHooks[Any] | None: ...
    @property
    def middleware(self) -> Sequence[Middleware[Any]]: ...


def compose_calls(agent: SurroundedAgent, options: RunConfig) -> AgentCalls:
    """Compose everything that surrounds the calls of an agent."""
    has_hooks = options.hooks is not None or agent.hooks is not None
    hooks = HookDispatcher(agent, options.hooks) if has_hooks else None
    stack = build_stack([*options.middleware, *agent.middleware])
    compose_model_call = partial(_compose_model_call, hooks, stack.model)
    return AgentCalls(
        compose_model_call,
        respond=compose_model_call(),
        call_tool=_compose_tool_call(hooks, stack.tool),
        activation=stack.activation,
        hooks=hooks,
        has_middleware=bool(options.middleware or agent.middleware),
        withholds_deltas=stack.holds_deltas,
    )


def calls_for(agent: SurroundedAgent, options: RunConfig) -> AgentCalls:
    """Return the composed calls of an agent, which are composed once.

    A function may return another agent of the same name, so the agent is compared too.
    """
    known = options.composed_calls.get(agent.name)
    if known is not None and known[0] is agent:
        return known[1]
    composed = compose_calls(agent, options)
    options.composed_calls[agent.name] = (agent, composed)
    return composed


def _compose_model_call(
    hooks: HookDispatcher | None, middleware: Sequence[Layer], *checks: LayerFunction
) -> Handler[ModelCall, AgentResponded]:
    layers: list[LayerFunction] = [record_response]
    if hooks is not None:
        layers.insert(0, partial(tell_of_model_call, hooks))
    if middleware:
        layers.append(require_content)
    return compose(ask, [*layers, *checks, *_middleware_layers(middleware)])


def _compose_tool_call(
    hooks: HookDispatcher | None, middleware: Sequence[Layer]
) -> Handler[ToolInvocation, CallOutcome]:
    layers: list[LayerFunction] = [record_tool_call, trace_tool_call, *_middleware_layers(middleware)]
    if hooks is not None:
        layers.insert(0, partial(tell_of_tool_call, hooks))
    if middleware:
        layers.append(call_in_own_scope)
    return compose(call_tool, layers)


def _middleware_layers(middleware: Sequence[Layer]) -> list[LayerFunction]:
    return [partial(surround, layer, position) for position, layer in enumerate(middleware, 1)]
