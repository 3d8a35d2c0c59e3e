/** The tools that act outside when a fork is run: those that this run called after the chosen event. */
import type { Team } from "../api/schemas";
import { agentOf, callsOf, type Event } from "../log/events";

export interface ActingTools {
  /** Those that ask before they act. */
  asking: string[];
  /** Those that run again. */
  repeating: string[];
}

/** `calls` are the names of the calls of the last copied event, if the form changes a response. */
export function actingTools(
  events: Event[],
  number: number,
  team: Team,
  calls?: string[],
): ActingTools {
  const agents = new Map(team.agents.map((agent) => [agent.name, agent]));
  const results = new Set(
    events.slice(0, number).flatMap(({ type, key }) => (type === "ToolReturned" ? [key] : [])),
  );
  const asking = new Set<string>();
  const repeating = new Set<string>();
  const add = (name: string, agent: string): void => {
    const caller = agents.get(agent);
    const effect = caller?.effects[name];
    if (effect === "once") asking.add(name);
    else if (effect === "idempotent") repeating.add(name);
    // The tools of toolsets are not known here.
    else if (!effect && caller?.sources.length && !isKnown(name, caller)) repeating.add(name);
  };
  events.forEach((event, index) => {
    if (event.type !== "AgentResponded") return;
    const edited = index === number - 1 ? calls : undefined;
    const names = edited ?? callsOf(event).map((call) => call.name);
    names.forEach((name, position) => {
      const isCopied = index < number && results.has(`${event.key}.${position}`);
      if (!isCopied) add(name, agentOf(event));
    });
  });
  return { asking: [...asking], repeating: [...repeating] };
}

const isKnown = (name: string, agent: Team["agents"][number]): boolean =>
  agent.tools.includes(name) || agent.edges.some((edge) => edge.via === name);
