/** A log for the tests. */
import type { Event } from "../src/log/events";

export const event = (
  type: string,
  key: string,
  at: number,
  agent = "",
  id = "1",
  more: Partial<Event> = {},
): Event => ({ type, key, timestamp: at, origin: [agent ? id : "", agent, null], ...more });
export const call = (name: string, args = "{}") => ({ id: `c-${name}`, name, arguments: args });
export const log: Event[] = [
  event("RunStarted", "run", 0, "", "", { run_id: "r", input: [{ role: "user", content: "hi" }] }),
  event("AgentStarted", "1", 0, "Desk"),
  event("AgentResponded", "1/m1", 1, "Desk", "1", {
    model: "m",
    usage: { input_tokens: 10, output_tokens: 2, cost: 0.5 } as Event["usage"],
    message: { role: "assistant", tool_calls: [call("go", '{"a": 1}')] },
  }),
  event("ToolReturned", "1/m1.0", 1, "Desk", "1", {
    tool_name: "go",
    requested_agent: "Sales",
    is_transfer_refused: true,
    content: "no",
  }),
  event("AgentResponded", "1/m2", 2, "Desk", "1", {
    model: "m",
    message: { role: "assistant", tool_calls: [call("go")] },
  }),
  event("ToolReturned", "1/m2.0", 2, "Desk", "1", {
    tool_name: "go",
    requested_agent: "Sales",
    content: "ok",
  }),
  event("ControlTransferred", "1/to", 2, "Desk", "1", {
    source: "Desk",
    target: "Sales",
    payload: { why: "tea" },
  }),
  event("AgentFinished", "1/end", 2, "Desk"),
  event("AgentStarted", "2", 2, "Sales", "2"),
  event("AgentResponded", "2/m1", 3, "Sales", "2", {
    model: "m",
    message: { role: "assistant", tool_calls: [call("pay"), call("look")] },
  }),
  event("InterruptRaised", "2/m1.0/ask1", 3, "Sales", "2", { payload: "sure?" }),
  event("RunSuspended", "suspended1", 3),
  event("RunResumed", "resumed1", 3603),
  event("InterruptAnswered", "2/m1.0/ask1!", 3603, "Sales", "2", {
    interrupt_id: "2/m1.0/ask1",
    answer: true,
  }),
  event("ToolReturned", "2/m1.0", 3604, "Sales", "2", { tool_name: "pay", content: "paid" }),
  event("ToolReturned", "2/m1.1", 3604, "Sales", "2", {
    tool_name: "look",
    content: "seen",
    is_error: true,
  }),
  event("AgentResponded", "2/m2", 3605, "Sales", "2", {
    model: "m",
    message: { role: "assistant", content: "Done." },
  }),
  event("AgentFinished", "2/end", 3605, "Sales", "2"),
  event("RunCompleted", "completed", 3605),
];
