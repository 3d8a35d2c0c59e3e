"""The supervisor pattern: an agent that hands work to others, and gets control back from each."""

from collections.abc import Sequence
from typing import Any, Literal

from typing_extensions import TypeVar

from .._checks import check_arguments, check_choice
from .._wording import show
from ..agents import AgentContext, AgentWrapper, BaseAgent
from ..agents.wrappers import run_or_report
from ..errors import SetupError
from ..handoffs import Handoff
from ..log import Action

Out = TypeVar("Out", default=str, covariant=True)


class SupervisorAgent(AgentWrapper[Any, Out]):
    """An agent with a handoff to each worker that returns control when the worker is done."""

    def __init__(self, inner: BaseAgent[Any, Out], workers: Sequence[BaseAgent[Any, Any]]) -> None:
        super().__init__(inner, further_handoffs=[Handoff(agent=worker, return_to="caller") for worker in workers])
        self.workers = tuple(workers)

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the agent."""
        return await self.inner.run(ctx)


class ReportingAgent(AgentWrapper[Any, Any]):
    """A worker whose failure is reported to its supervisor."""

    def __init__(self, inner: BaseAgent[Any, Any], to: str) -> None:
        super().__init__(inner)
        self.to = to

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the worker; report a failure instead of raising it."""
        return await run_or_report(self.inner, ctx, to=self.to)


@check_arguments
def supervisor(
    agent: BaseAgent[Any, Out],
    *,
    sub_agents: Sequence[BaseAgent[Any, Any]],
    on_error: Literal["raise", "report"] = "raise",
) -> SupervisorAgent[Out]:
    """Make an agent the supervisor of workers, which return control to it when they are done.

    Workers may be any agents, including supervisors; they cannot transfer to each other. A worker that exits ends the
    run.

    Args:
        agent: The agent that supervises.
        sub_agents: The workers, at least one.
        on_error: "raise" ends the run when a worker fails, "report" tells the supervisor in a message. It applies to
            these workers, not to those of nested supervisors.

    Returns:
        The supervisor; run it like any agent.

    Raises:
        SetupError: There are no workers, or one has the name of the supervisor.
    """
    check_choice(f"on_error of supervisor(`{agent.name}`)", on_error, ("raise", "report"))
    if not sub_agents:
        raise SetupError(f"supervisor(`{agent.name}`) has no workers; give at least one in sub_agents=[…]")
    for worker in sub_agents:
        if not isinstance(worker, BaseAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"supervisor(`{agent.name}`) has {show(worker)} in sub_agents; all must be agents")
        if worker.name == agent.name:
            raise SetupError(f"`{worker.name}` cannot supervise itself; give the supervisor and its worker two names")
    workers = sub_agents
    if on_error == "report":
        workers = [ReportingAgent(worker, agent.name) for worker in sub_agents]
    return SupervisorAgent(agent, workers)
