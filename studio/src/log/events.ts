/** Events and messages as the log has them, and small functions over them. */
import { type Usage } from "../api/schemas";

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
  values?: Record<string, unknown>;
  value_changes?: { written?: Record<string, unknown>; removed?: string[] } | null;
  stop_reason?: string;
  outcome?: string;
}

export const messageOf = (event: Event): Message | undefined =>
  typeof event.message === "object" ? event.message : undefined;

export const callsOf = (event: Event): ToolCall[] => messageOf(event)?.tool_calls ?? [];

/** Whether an agent got control of the run; agents inside another one, or in a tool call, do not. */
export const startsHolder = (event: Event): boolean =>
  event.type === "AgentStarted" && !event.origin[0].includes("/");
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
