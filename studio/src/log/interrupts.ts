/** The questions of a run. */
import { type Event } from "./events";

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
