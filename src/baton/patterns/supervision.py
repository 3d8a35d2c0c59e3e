"""An agent that gives work to others and gets the floor back from each of them."""

from collections.abc import Coroutine, Sequence
from typing import Any, Literal

from typing_extensions import TypeVar

from ..agents import AgentContext, AgentWrapper, BaseAgent
from ..agents.wrappers import run_or_report
from ..errors import SetupError, check_choice
from ..events import Action
from ..handoffs import Handoff

Out = TypeVar("Out", default=str, covariant=True)


class SupervisorAgent(AgentWrapper[Any, Out]):
    """Another agent under its own name, with an edge to each worker that leads back when the worker is done."""

    def __init__(self, inner: BaseAgent[Any, Out], workers: Sequence[BaseAgent[Any, Any]]) -> None:
        super().__init__(inner, further_handoffs=[Handoff(agent=worker, return_to="caller") for worker in workers])
        self.workers = tuple(workers)

    def run(self, ctx: AgentContext[Any]) -> Coroutine[Any, Any, Action | None]:
        """Let the agent work; whom it transfers to, and who comes back, is said by the edges."""
        return self.inner.run(ctx)


class ReportingAgent(AgentWrapper[Any, Any]):
    """A worker whose failure is told to its supervisor."""

    def __init__(self, inner: BaseAgent[Any, Any], to: str) -> None:
        super().__init__(inner)
        self.to = to

    def run(self, ctx: AgentContext[Any]) -> Coroutine[Any, Any, Action | None]:
        """Let the worker work; after a failure it ends, so that control goes back."""
        return run_or_report(self.inner, ctx, to=self.to)


def supervisor(
    agent: BaseAgent[Any, Out],
    *,
    sub_agents: Sequence[BaseAgent[Any, Any]],
    on_error: Literal["raise", "report"] = "raise",
) -> SupervisorAgent[Out]:
    """The agent as the supervisor of these workers: each returns to it when done, and none can reach another.

    Workers may be any agents, supervisors among them. A worker's exit ends everything; its error ends the run, or is
    told to the supervisor as a message with `on_error="report"`, which holds for this layer's workers alone.
    """
    check_choice(f"on_error of supervisor(`{agent.name}`)", on_error, ("raise", "report"))
    if not sub_agents:
        raise SetupError(f"supervisor(`{agent.name}`) has no workers; give at least one in sub_agents=[…]")
    for worker in sub_agents:
        if not isinstance(worker, BaseAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"supervisor(`{agent.name}`) has {worker!r} in sub_agents; give agents")
        if worker.name == agent.name:
            raise SetupError(f"`{worker.name}` cannot supervise itself; give the supervisor and its worker two names")
    workers = sub_agents
    if on_error == "report":
        workers = [ReportingAgent(worker, agent.name) for worker in sub_agents]
    return SupervisorAgent(agent, workers)
