/** The graph beside a log. */
import { useMemo } from "preact/hooks";
import { type Event, agentOf, startsHolder } from "../log/events";
import { chosen, log } from "../state/shown-run";
import { team } from "../state/team";
import { Graph } from "./graph";

/** The graph beside a log: the agent that was active at the chosen event, and the edges followed until then. */
export function RunGraph() {
  const [active, used] = useMemo(() => {
    const edges = new Map<string, number>();
    let last = "";
    for (const event of log.value.slice(0, chosen.value + 1) as Event[]) {
      if (event.type === "ControlTransferred") {
        const name = `${event.source} → ${event.target}`;
        edges.set(name, (edges.get(name) ?? 0) + 1);
      }
      if (startsHolder(event)) last = agentOf(event);
    }
    return [last, edges] as const;
  }, [log.value, chosen.value]);
  // The run may be of another team than the one that Studio was started with.
  const first = log.value.find((event) => event.type === "AgentStarted");
  const isOther = !!first && !team.value.agents.some((agent) => agent.name === agentOf(first));
  return isOther ? null : <Graph isCompact active={active} used={used} />;
}
