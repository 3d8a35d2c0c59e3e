/** Events in one line. */
import { type Event, agentOf, brief, callText, callsOf, messageOf, textOf } from "./events";
import { isOutcome } from "./outcome";

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
  if (isOutcome(payload))
    return `has ${payload.tool}(${brief(JSON.stringify(payload.arguments))}) happened?`;
  if (payload && typeof payload === "object" && typeof payload.question === "string")
    return payload.question;
  return textOf(payload) || "waits for an answer";
}
