/** The types of the API, and small functions over events and messages that all views share. */
import type { components } from "./api-types";

type Schemas = components["schemas"];
export type RunView = Schemas["RunView"];
export type RunDetail = Schemas["RunDetail"];
export type RunSummary = Schemas["RunSummary"];
export type Team = Schemas["TeamDescription"];
export type RequestView = Schemas["RequestView"];
export type HandoffDiff = Schemas["HandoffDiff"];
export type Comparison = Schemas["Comparison"];
export type ReplayVerdict = Schemas["ReplayVerdict"];
export type UsageReport = Schemas["UsageReport"];
export type RunUsage = Schemas["RunUsageView"];
export type UsageRow = Schemas["UsageRow"];
export type ThreadEntry = Schemas["ThreadEntry"];
export type Usage = Schemas["Usage"];

export interface ToolCall {
  id: string;
  name: string;
  arguments?: string;
}
export interface Message {
  role: string;
  content?: unknown;
  tool_calls?: ToolCall[];
  tool_name?: string;
  name?: string;
  is_error?: boolean;
}
/** An event as the log has it: the fields of all classes that the page reads. */
export interface Event {
  type: string;
  key: string;
  origin: [id: string, agent: string, parent: string | null];
  timestamp: number;
  message?: Message | string;
  model?: string;
  usage?: Usage | null;
  request?: { policy?: string; entries?: number } | null;
  input?: Message[];
  opens?: { kind: string } | null;
  run_id?: string;
  thread?: string;
  forked_from?: string;
  team_fingerprint?: Record<string, string>;
  call_id?: string | null;
  tool_name?: string;
  tool_call?: ToolCall | null;
  content?: unknown;
  is_error?: boolean;
  is_transfer_refused?: boolean;
  requested_agent?: string;
  source?: string;
  target?: string;
  payload?: unknown;
  reason?: string;
  name?: string;
  result?: unknown;
  interrupt_id?: string;
  item_id?: string;
  answer?: unknown;
  schema?: Record<string, unknown> | null;
  error_type?: string;
  heard_text?: string;
  played_ms?: number;
  speech?: { start: number; end: number } | null;
  response_key?: string;
  summary?: { message: Message }[];
  stop_reason?: string;
  outcome?: string;
}

export const messageOf = (event: Event): Message | undefined =>
  typeof event.message === "object" ? event.message : undefined;
export const callsOf = (event: Event): ToolCall[] => messageOf(event)?.tool_calls ?? [];
export const agentOf = (event: Event): string => event.origin?.[1] ?? "";

export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (content == null) return "";
  if (Array.isArray(content)) {
    return content
      .map((part: Record<string, unknown>) =>
        typeof part.text === "string"
          ? part.text
          : part.type === "data"
            ? JSON.stringify(part.value)
            : ` [${String(part.name ?? part.type ?? "part")}]`,
      )
      .join("");
  }
  return JSON.stringify(content);
}

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

/** `{"a":1}` as `a: 1`, which is shorter to read; other text as it is. */
export function brief(json: string | undefined): string {
  try {
    const value: unknown = JSON.parse(json ?? "");
    if (value === null || typeof value !== "object") return String(json);
    return Object.entries(value)
      .map(([name, each]) => `${name}: ${JSON.stringify(each)}`)
      .join(", ");
  } catch {
    return json ?? "";
  }
}
export const callText = (call: ToolCall): string => `${call.name}(${brief(call.arguments)})`;
export const blockText = (message: Message | null | undefined): string => {
  if (!message) return "(deleted with an earlier run of the thread)";
  const calls = (message.tool_calls ?? []).map(callText).join("\n");
  return [textOf(message.content), calls].filter(Boolean).join("\n");
};

/** The kind and the text of an event in the list. */
export function describe(event: Event): [kind: string, text: string] {
  switch (event.type) {
    case "RunStarted":
      return ["input", (event.input ?? []).map((each) => textOf(each.content)).join(" ")];
    case "RunResumed":
      return ["resumed", ""];
    case "AgentStarted":
      return ["active", `${agentOf(event)} is active`];
    case "AgentResponded": {
      const calls = callsOf(event);
      const text = textOf(messageOf(event)?.content);
      return calls.length
        ? ["calls", [text, ...calls.map(callText)].filter(Boolean).join("  ")]
        : ["said", text];
    }
    case "UserMessageAdded":
      return ["user", textOf(messageOf(event)?.content)];
    case "ResponseTruncated":
      return ["cut off", event.heard_text ?? ""];
    case "HistoryCompacted":
      return [
        "compacted",
        (event.summary ?? []).map((each) => textOf(each.message.content)).join(" "),
      ];
    case "ToolReturned":
      return [
        event.is_transfer_refused ? "refused" : event.is_error ? "failed" : "returned",
        `${event.tool_name} → ${textOf(event.content)}`,
      ];
    case "StepCompleted":
      return [
        "step",
        `${event.name ?? ""} ${event.result == null ? "" : JSON.stringify(event.result)}`,
      ];
    case "ControlTransferred":
      return [
        "transfer",
        `${event.source} → ${event.target}${event.reason ? ` (${event.reason})` : ""}`,
      ];
    case "TaskOpened":
      return ["task", "opened"];
    case "TaskEnded":
      return ["task", event.outcome ?? "ended"];
    case "InterruptRaised":
      return ["asks", question(event)];
    case "InterruptAnswered":
      return ["answer", JSON.stringify(event.answer)];
    case "AgentFinished":
      return ["finished", ""];
    case "RunFailed":
      return [
        "error",
        `${event.error_type}: ${typeof event.message === "string" ? event.message : ""}`,
      ];
    case "RunCompleted":
      return ["completed", ""];
    case "RunSuspended":
      return ["suspended", ""];
    case "RunCancelled":
      return ["cancelled", ""];
    default:
      return [event.type, ""];
  }
}

/** The question of an interrupt in one line. */
export function question(event: Event): string {
  const payload = event.payload as Record<string, unknown> | string | null;
  const call = event.tool_call;
  if (call && payload && typeof payload === "object" && payload.kind === "approval")
    return `allow ${callText(call)}?`;
  if (payload && typeof payload === "object" && typeof payload.question === "string")
    return payload.question;
  return textOf(payload) || "waits for an answer";
}

/** The interrupts that have no answer yet. */
export function openInterrupts(events: Event[]): Event[] {
  const answered = new Set(
    events.filter((each) => each.type === "InterruptAnswered").map((each) => each.interrupt_id),
  );
  const results = new Set(
    events.filter((each) => each.type === "ToolReturned").map((each) => each.key),
  );
  return events.filter((each) => {
    if (each.type !== "InterruptRaised" || answered.has(each.key)) return false;
    const call = /^(.*\/[im]\d+\.\d+)\//.exec(each.key);
    return !call || !results.has(call[1]!);
  });
}

export const money = (cost: number): string =>
  cost >= 1 ? `$${cost.toFixed(2)}` : `$${cost.toFixed(4)}`;
export const count = (value: number): string => value.toLocaleString("en");
export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${Math.round(seconds % 60)} s`;
  if (seconds < 86400)
    return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} m`;
  return `${Math.round(seconds / 86400)} d`;
}
export function ago(time: number, now = Date.now() / 1000): string {
  const seconds = now - time;
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

export function totals(events: Event[]): {
  tokens: number;
  cost: number;
  cached: number;
  unpriced: number;
} {
  let tokens = 0;
  let cost = 0;
  let cached = 0;
  let unpriced = 0;
  for (const { usage } of events)
    if (usage) {
      tokens += (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
      cost += usage.cost ?? 0;
      cached += usage.cached_tokens ?? 0;
      unpriced += usage.unpriced_calls ?? 0;
    }
  return { tokens, cost, cached, unpriced };
}
