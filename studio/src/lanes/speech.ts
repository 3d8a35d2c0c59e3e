/** The speech of a live conversation as a lane. */
import { type Bar, type BarKind, type Point, type Timeline } from "./timeline";
import { type Event, agentOf, messageOf, textOf } from "../log/events";

export const SPEECH = "Speech";

/** Return whether a log is of a live conversation, in which speech is heard and interrupted. */
export const isLive = (events: Event[]): boolean =>
  events.some(
    (event) =>
      !!event.speech ||
      event.type === "ResponseTruncated" ||
      (event.type === "UserMessageAdded" && !!event.item_id),
  );

/** Show a live conversation as a lane: what was heard of either side, interruptions, and silence after transfers. */
export function addSpeech(out: Timeline, events: Event[]): void {
  if (!isLive(events)) return;
  const lane = out.lanes.push({ name: SPEECH, depth: 0 }) - 1;
  const cuts = new Map<string, number>();
  const opened = new Map<string, number>();
  const point = pointOf(events);
  const found: Bar[] = [];
  const add = (
    kind: BarKind,
    index: number,
    from: number,
    to: number,
    speaker: string,
    label: string,
  ): void => {
    found.push({
      kind,
      index,
      lane,
      from: point(from),
      to: point(to),
      label,
      failed: false,
      row: 0,
      rows: 1,
      tokens: 0,
      cost: 0,
      speaker,
    });
  };
  for (const event of events)
    if (event.type === "ResponseTruncated")
      cuts.set(event.response_key ?? "", (event.played_ms ?? 0) / 1000);
  const heard = new Map<string, number>();
  let audible = 0;
  events.forEach((event, index) => {
    const { speech } = event;
    const agent = agentOf(event);
    const text = textOf(messageOf(event)?.content);
    if (event.type === "ControlTransferred") opened.set(event.target ?? "", index);
    if (event.type === "UserMessageAdded" && speech)
      add("speech", index, speech.start, speech.end, "User", text);
    if (event.type === "ResponseTruncated")
      out.notes.push({
        index,
        lane,
        at: point(heard.get(event.response_key ?? "") ?? event.timestamp),
        text: `interrupted; heard: ${event.heard_text || "nothing"}`,
        kind: "cut",
      });
    if (event.type !== "AgentResponded") return;
    const from = opened.get(agent);
    const start = speech?.start ?? event.timestamp;
    opened.delete(agent);
    if (from !== undefined && start > Math.max(events[from]!.timestamp, audible))
      add("gap", from, Math.max(events[from]!.timestamp, audible), start, agent, agent);
    if (!speech) return;
    const played = cuts.get(event.key);
    const end = played === undefined ? speech.end : Math.min(speech.end, speech.start + played);
    heard.set(event.key, end);
    audible = Math.max(audible, end);
    add("speech", index, speech.start, end, agent, text);
  });
  out.bars.push(...found);
  out.notes.sort((a, b) => a.at.step - b.at.step);
}

/** Return the place of a time between the events, within the run. */
function pointOf(events: Event[]): (time: number) => Point {
  const times: number[] = [];
  for (const event of events) times.push(Math.max(event.timestamp, times.at(-1) ?? 0));
  return (time) => {
    let next = 0;
    let high = times.length;
    while (next < high) {
      const middle = (next + high) >> 1;
      if (times[middle]! <= time) next = middle + 1;
      else high = middle;
    }
    if (next === times.length) return { time: times.at(-1)!, step: times.length - 1 };
    if (next === 0) return { time: times[0]!, step: 0 };
    const before = times[next - 1]!;
    return { time, step: next - 1 + (time - before) / (times[next]! - before) };
  };
}
