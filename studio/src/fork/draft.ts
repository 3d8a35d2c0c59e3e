/** What a fork changes in its last event. */
import { type Event, callsOf, messageOf, textOf } from "../log/events";

export interface Draft {
  kind: "text" | "json" | "response" | "none";
  text: string;
  calls: { name: string; arguments: string }[];
}

export function draftOf(event: Event): Draft {
  const none: Draft = { kind: "none", text: "", calls: [] };
  switch (event.type) {
    case "RunStarted":
      return {
        ...none,
        kind: "text",
        text: textOf(event.input?.findLast((each) => each.role === "user")?.content),
      };
    case "UserMessageAdded":
      return { ...none, kind: "text", text: textOf(messageOf(event)?.content) };
    case "ToolReturned":
      return { ...none, kind: "text", text: textOf(event.content) };
    case "InterruptAnswered":
      return { ...none, kind: "json", text: JSON.stringify(event.answer, null, 2) };
    case "StepCompleted":
      return { ...none, kind: "json", text: JSON.stringify(event.result ?? null, null, 2) };
    case "AgentResponded":
      return {
        kind: "response",
        text: textOf(messageOf(event)?.content),
        calls: callsOf(event).map((call) => ({
          name: call.name,
          arguments: call.arguments ?? "{}",
        })),
      };
    default:
      return none;
  }
}

/** The new content of the event, or undefined if it is unchanged. Throws if JSON is invalid. */
export function editOf(before: Draft, after: Draft): unknown {
  if (JSON.stringify(before) === JSON.stringify(after)) return undefined;
  if (after.kind === "text") return after.text;
  if (after.kind === "json") return JSON.parse(after.text);
  const calls = after.calls.map((call) => ({
    name: call.name,
    arguments: JSON.parse(call.arguments || "{}") as unknown,
  }));
  return { content: after.text, tool_calls: calls };
}
