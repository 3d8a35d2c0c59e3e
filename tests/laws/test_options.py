"""Options of a run equal the same options of the agents, also after a crash at every event."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.laws.executions import Execution, run_in_loop
from tests.laws.plans import Scenario, TeamPlan
from tests.laws.strategies import scenarios

from batonkit import AgentOptions, RunResult
from batonkit.log import Event, RunStarted, decode_log, encode_log


def _stripped(scenario: Scenario) -> Scenario:
    """Return the scenario with other limits of turns."""
    agents = [replace(agent, max_turns=20) for agent in scenario.team.agents]
    return replace(scenario, team=TeamPlan(tuple(agents)))


def _options(scenario: Scenario) -> Mapping[str, AgentOptions]:
    """Return the options that make a stripped scenario equal to the original one."""
    return {
        agent.name: AgentOptions(max_turns=agent.max_turns, tools=[tool.name for tool in agent.tools])
        for agent in scenario.team.agents
    }


def _summary(result: RunResult[object]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values


def _keys(events: tuple[Event, ...]) -> list[str]:
    return [event.key for event in events]


@settings(max_examples=settings().max_examples // 2)
@given(scenario=scenarios(), data=st.data())
def test_options_of_a_run_equal_those_of_the_agents(scenario: Scenario, data: st.DataObject) -> None:
    note(repr(scenario))
    expected = run_in_loop(Execution(scenario).run())
    given_once = Execution(_stripped(scenario), agent_options=_options(scenario))
    result = run_in_loop(given_once.run())
    assert _summary(result) == _summary(expected)
    assert _keys(result.events) == _keys(expected.events)
    assert isinstance(result.events[0], RunStarted)
    assert result.events[0].options
    if result.status != "completed":
        return
    # The next process is given nothing: the log has the options.
    length = data.draw(st.integers(1, len(result.events) - 1), label="events before the crash")
    other = Execution(_stripped(scenario))
    resumed = run_in_loop(other.resume_from(decode_log(encode_log(result.events[:length]))))
    assert _summary(resumed) == _summary(expected)
    replayed = run_in_loop(Execution(_stripped(scenario)).runner.runs.replay(result.events))
    assert _summary(replayed) == _summary(expected)
