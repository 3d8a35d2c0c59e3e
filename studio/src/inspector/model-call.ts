/** The model call that an event is about. */
import { type Event, agentOf } from "../log/events";

/** The model call that an event is about: of a transfer, the receiver's first one; else the last one before it. */
export function callOf(events: Event[], index: number): number {
  const event = events[index];
  if (!event) return -1;
  const isCall = (each: Event): boolean => each.type === "AgentResponded" && !!each.model;
  if (event.type === "ControlTransferred") {
    for (let at = index + 1; at < events.length; at++)
      if (isCall(events[at]!) && agentOf(events[at]!) === event.target) return at;
  }
  const id = event.origin?.[0];
  for (let at = index; at >= 0; at--)
    if (isCall(events[at]!) && (!id || events[at]!.origin[0] === id)) return at;
  for (let at = index + 1; at < events.length; at++) if (isCall(events[at]!)) return at;
  return -1;
}
