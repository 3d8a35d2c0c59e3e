/** Who says something to the user. */
import { type Event, agentOf } from "../log/events";

/**
 * Return who says something to the user: the agent that holds control, also for agents inside it. What an agent that
 * runs as a tool says is for the agent that calls it, and has no speaker.
 */
export function speakers(events: Event[]): (origin: Event["origin"]) => string | null {
  const started = events.filter((event) => event.type === "AgentStarted");
  const holders = new Map(started.map((event) => [event.origin[0], agentOf(event)]));
  const closed = started
    .filter((event) => event.opens?.kind === "new")
    .map(({ origin: [id] }) => id.slice(0, id.lastIndexOf("/") + 1));
  return ([id, agent]) =>
    closed.some((scope) => id.startsWith(scope)) ? null : (holders.get(id.split("/")[0]!) ?? agent);
}
