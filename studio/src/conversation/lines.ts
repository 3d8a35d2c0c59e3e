/** What was said in a run. */
import { speakers } from "./speakers";
import { type Event, agentOf, callsOf, messageOf, textOf } from "../log/events";

export interface Line {
  who: string;
  text: string;
  index: number;
  agent?: string;
}

/** The words of the user, whose name is empty, and of the agents that hold control. */
export function conversation(events: Event[]): Line[] {
  const speaker = speakers(events);
  return events.flatMap((event, index): Line[] => {
    const text = textOf(messageOf(event)?.content);
    if (event.type === "RunStarted")
      return (event.input ?? []).map((each) => ({
        who: each.role === "user" ? "" : "earlier",
        text: textOf(each.content),
        index,
      }));
    if (event.type === "UserMessageAdded") return [{ who: "", text, index }];
    if (event.type !== "AgentResponded" || !text || callsOf(event).length) return [];
    const who = speaker(event.origin);
    return who === null ? [] : [{ who, text, index, agent: agentOf(event) }];
  });
}
