/** From a log to what the lanes show: lanes, bars, transfers, questions, and the growth of cost. Pure. */
import { type Usage } from "../api/schemas";
import { union } from "./intervals";
import { addSpeech } from "./speech";
import { question } from "../log/descriptions";
import { type Event, agentOf, callsOf, messageOf, textOf } from "../log/events";

export type BarKind = "model" | "tool" | "wait" | "speech" | "gap";

export interface Point {
  time: number;
  step: number;
}

export interface Lane {
  name: string;
  depth: number;
}

export interface Bar {
  kind: BarKind;
  index: number;
  lane: number;
  from: Point;
  to: Point;
  label: string;
  failed: boolean;
  row: number;
  rows: number;
  tokens: number;
  cost: number;
  speaker?: string;
}

export interface Hop {
  index: number;
  from: number;
  to: number;
  at: Point;
  label: string;
  refused: boolean;
  reason: string;
}

export interface Stay {
  lane: number;
  from: Point;
  to: Point;
}

export interface Note {
  index: number;
  lane: number;
  at: Point;
  text: string;
  kind: "input" | "answer" | "cut";
}

export interface Timeline {
  lanes: Lane[];
  bars: Bar[];
  hops: Hop[];
  stays: Stay[];
  notes: Note[];
  growth: { at: Point; cost: number; tokens: number }[];
  start: Point;
  end: Point;
  busy: number;
  waited: number;
  refused: number;
}

const payloadText = (payload: unknown): string =>
  payload && typeof payload === "object"
    ? Object.entries(payload)
        .map(
          ([name, value]) =>
            `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
        )
        .join(", ")
    : payload == null
      ? ""
      : String(payload);

/** The nesting of activations: an activation is inside the one whose id is the longest prefix of its own. */
function depths(events: Event[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const event of events) {
    const id = event.origin?.[0] ?? "";
    if (!id || found.has(id)) continue;
    let around = id;
    let depth = 0;
    for (;;) {
      const cut = around.lastIndexOf("/");
      if (cut < 0) break;
      around = around.slice(0, cut);
      const outer = found.get(around);
      if (outer !== undefined) {
        depth = outer + 1;
        break;
      }
    }
    found.set(id, depth);
  }
  return found;
}

export function buildTimeline(events: Event[], order: string[] = []): Timeline {
  const nesting = depths(events);
  const lanes: Lane[] = [{ name: "User", depth: 0 }];
  const laneOf = new Map<string, number>();
  const add = (name: string, depth: number): number => {
    const known = laneOf.get(name);
    if (known !== undefined) {
      lanes[known]!.depth = Math.min(lanes[known]!.depth, depth);
      return known;
    }
    laneOf.set(name, lanes.push({ name, depth }) - 1);
    return lanes.length - 1;
  };
  const first = new Map<string, number>();
  for (const event of events) {
    const agent = agentOf(event);
    if (agent && !first.has(agent)) first.set(agent, nesting.get(event.origin[0]) ?? 0);
  }
  for (const name of order) if (first.get(name) === 0) add(name, 0);
  for (const [name, depth] of first) add(name, depth);
  const start: Point = { time: events[0]?.timestamp ?? 0, step: 0 };
  const out: Timeline = {
    lanes,
    bars: [],
    hops: [],
    stays: [],
    notes: [],
    growth: [],
    start,
    end: start,
    busy: 0,
    waited: 0,
    refused: 0,
  };
  const last = new Map<string, Point>();
  const began = new Map<string, { at: Point; lane: number }>();
  const calls = new Map<string, { at: Point; row: number; rows: number; args: string }>();
  const asked = new Map<string, { at: Point; index: number; lane: number; text: string }>();
  const spoken = events
    .flatMap((event) =>
      event.type === "UserMessageAdded" && event.speech ? [event.speech.end] : [],
    )
    .toSorted((a, b) => a - b);
  let cost = 0;
  let tokens = 0;
  let resumed = start;
  const latest = (a: Point, b: Point): Point => (a.step > b.step ? a : b);
  const endWait = (key: string, at: Point): void => {
    const open = asked.get(key);
    if (!open) return;
    asked.delete(key);
    out.bars.push({
      kind: "wait",
      index: open.index,
      lane: open.lane,
      from: open.at,
      to: at,
      label: open.text,
      failed: false,
      row: 0,
      rows: 1,
      tokens: 0,
      cost: 0,
    });
  };
  events.forEach((event, index) => {
    const at: Point = { time: Math.max(event.timestamp, out.end.time), step: index };
    out.end = at;
    const id = event.origin?.[0] ?? "";
    const agent = agentOf(event);
    const lane = agent ? laneOf.get(agent)! : 0;
    const since = latest(last.get(id) ?? resumed, resumed);
    switch (event.type) {
      case "RunStarted":
        if (event.input?.length)
          out.notes.push({
            index,
            lane: 0,
            at,
            text:
              event.input
                .filter((each) => each.role === "user")
                .map((each) => textOf(each.content))
                .at(-1) ?? "",
            kind: "input",
          });
        break;
      case "UserMessageAdded":
        out.notes.push({
          index,
          lane: 0,
          at,
          text: textOf(messageOf(event)?.content),
          kind: "input",
        });
        break;
      case "RunResumed":
        resumed = at;
        break;
      case "AgentStarted":
        began.set(id, { at, lane });
        break;
      case "AgentResponded": {
        const used: Partial<Usage> = event.usage ?? {};
        const spent = (used.input_tokens ?? 0) + (used.output_tokens ?? 0);
        const made = callsOf(event);
        cost += used.cost ?? 0;
        tokens += spent;
        out.growth.push({ at, cost, tokens });
        made.forEach((call, row) =>
          calls.set(`${event.key}.${row}`, {
            at,
            row,
            rows: made.length,
            args: call.arguments ?? "",
          }),
        );
        // A live model answers what was said; it does not work while the user thinks or speaks.
        const asked = spoken.findLast((end) => end <= at.time) ?? 0;
        const from = asked > since.time ? { time: asked, step: since.step } : since;
        if (event.model)
          out.bars.push({
            kind: "model",
            index,
            lane,
            from,
            to: at,
            label: event.model,
            failed: false,
            row: 0,
            rows: 1,
            tokens: spent,
            cost: used.cost ?? 0,
          });
        if (!made.length && nesting.get(id) === 0)
          out.notes.push({
            index,
            lane,
            at,
            text: textOf(messageOf(event)?.content),
            kind: "answer",
          });
        break;
      }
      case "HistoryCompacted": {
        const used: Partial<Usage> = event.usage ?? {};
        cost += used.cost ?? 0;
        tokens += (used.input_tokens ?? 0) + (used.output_tokens ?? 0);
        break;
      }
      case "ToolReturned": {
        const call = calls.get(event.key);
        if (event.requested_agent) {
          if (event.is_transfer_refused || event.is_error) {
            out.refused++;
            out.hops.push({
              index,
              from: lane,
              to: laneOf.get(event.requested_agent) ?? lane,
              at,
              label: event.requested_agent,
              refused: true,
              reason: textOf(event.content),
            });
          }
        } else
          out.bars.push({
            kind: "tool",
            index,
            lane,
            from: call ? latest(call.at, resumed) : since,
            to: at,
            label: event.tool_name ?? "",
            failed: !!event.is_error,
            row: call?.row ?? 0,
            rows: call?.rows ?? 1,
            tokens: 0,
            cost: 0,
          });
        for (const key of [...asked.keys()]) if (key.startsWith(`${event.key}/`)) endWait(key, at);
        break;
      }
      case "ControlTransferred":
        out.hops.push({
          index,
          from: laneOf.get(event.source ?? "") ?? 0,
          to: laneOf.get(event.target ?? "") ?? lane,
          at,
          label: payloadText(event.payload),
          refused: false,
          reason: event.reason ?? "",
        });
        break;
      case "InterruptRaised":
        asked.set(event.key, { at, index, lane, text: question(event) });
        break;
      case "InterruptAnswered":
        endWait(event.interrupt_id ?? "", at);
        break;
      case "AgentFinished": {
        const open = began.get(id);
        if (open) out.stays.push({ lane: open.lane, from: open.at, to: at });
        began.delete(id);
        break;
      }
    }
    if (id) last.set(id, at);
  });
  out.waited = union(
    out.bars.filter((bar) => bar.kind === "wait").map((bar) => [bar.from.time, bar.to.time]),
  ).reduce((sum, [from, to]) => sum + to - from, 0);
  for (const open of began.values())
    out.stays.push({ lane: open.lane, from: open.at, to: out.end });
  if (asked.size) {
    // An open question has no end; it is drawn a little further than the last event.
    const end: Point = {
      time: out.end.time + Math.max(0.4, busy(out.bars) * 0.06),
      step: out.end.step + 1,
    };
    for (const key of [...asked.keys()]) endWait(key, end);
    out.end = end;
  }
  addSpeech(out, events);
  out.bars.sort((a, b) => a.from.step - b.from.step);
  out.stays.sort((a, b) => a.from.step - b.from.step);
  out.busy = busy(out.bars);
  return out;
}

/** Return the seconds in which something happened: a model or a tool worked, or something was said. */
const busy = (bars: Bar[]): number =>
  union(
    bars
      .filter((bar) => bar.kind !== "wait" && bar.kind !== "gap")
      .map((bar) => [bar.from.time, bar.to.time]),
  ).reduce((sum, [from, to]) => sum + to - from, 0);
