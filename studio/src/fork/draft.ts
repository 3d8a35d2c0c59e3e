/** What a fork changes in its last event. */
import { callsOf, messageOf, textOf, type Event } from "../log/events";
import { parseJson } from "../schema/json-field";

export interface DraftCall {
  name: string;
  arguments: string;
}
export interface Draft {
  kind: "text" | "json" | "response" | "none";
  text: string;
  calls: DraftCall[];
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

/** What is wrong with a form, by the field: "json", "call 0", "model"; "" for the form as a whole. */
export type Problems = Record<string, string>;

/** The new content of the event, undefined if it is unchanged, and what is wrong with it. */
export function editOf(before: Draft, after: Draft): { edit: unknown; problems: Problems } {
  const problems: Problems = {};
  const parse = (field: string, text: string): unknown => {
    try {
      return parseJson(text);
    } catch (error) {
      problems[field] = (error as Error).message;
      return undefined;
    }
  };
  if (JSON.stringify(before) === JSON.stringify(after)) return { edit: undefined, problems };
  if (after.kind === "text") return { edit: after.text, problems };
  if (after.kind === "json") return { edit: parse("json", after.text), problems };
  const calls = after.calls.map((call, index) => ({
    name: call.name,
    arguments: parse(`call ${index}`, call.arguments || "{}"),
  }));
  return { edit: { content: after.text, tool_calls: calls }, problems };
}
