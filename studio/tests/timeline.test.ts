import { describe, expect, test } from "vitest";
import { buildTimeline } from "../src/lanes/timeline";
import { event, log } from "./recorded-log";

describe("timeline", () => {
  const drawn = buildTimeline(log, ["Desk", "Sales"]);
  test("has a lane for the user and one for each agent", () =>
    expect(drawn.lanes.map((lane) => lane.name)).toEqual(["User", "Desk", "Sales"]));
  test("draws model calls, tools and waiting", () => {
    expect(drawn.bars.map((bar) => `${bar.kind} ${bar.label}`).toSorted()).toEqual([
      "model m",
      "model m",
      "model m",
      "model m",
      "tool look",
      "tool pay",
      "wait sure?",
    ]);
    expect(drawn.bars.find((bar) => bar.kind === "wait")).toMatchObject({
      from: { time: 3 },
      to: { time: 3603 },
    });
    expect(drawn.bars.find((bar) => bar.label === "pay")).toMatchObject({
      from: { time: 3603 },
      to: { time: 3604 },
    });
    expect(drawn.bars.find((bar) => bar.label === "look")?.failed).toBe(true);
  });
  test("draws transfers with their payload, and refused ones with the reason", () => {
    expect(drawn.hops.map((hop) => [hop.refused, hop.label, hop.reason])).toEqual([
      [true, "Sales", "no"],
      [false, "why: tea", ""],
    ]);
  });
  test("keeps waiting apart from the time that was spent", () => {
    expect(drawn.busy).toBeCloseTo(5);
    expect(drawn.waited).toBe(3600);
  });
  test("adds up cost and tokens", () =>
    expect(drawn.growth.at(-1)).toMatchObject({ cost: 0.5, tokens: 12 }));
  test("shows speech, interruptions and silence after transfers of a live conversation as a lane", () => {
    const said = (content: string) => ({ message: { role: "assistant", content } });
    const spoken = [
      log[0]!,
      event("AgentStarted", "1", 0, "Desk"),
      event("AgentResponded", "1/i1", 5, "Desk", "1", {
        model: "m",
        ...said("One moment."),
        speech: { start: 4, end: 7 },
      }),
      event("UserMessageAdded", "1/i0", 5.5, "Desk", "1", {
        item_id: "i1",
        message: { role: "user", content: "hello" },
        speech: { start: 1, end: 3 },
      }),
      event("ControlTransferred", "1/to", 6, "Desk", "1", { source: "Desk", target: "Sales" }),
      event("AgentStarted", "2", 6, "Sales", "2"),
      event("AgentResponded", "2/i1", 7.5, "Sales", "2", {
        model: "m",
        ...said("Hi there!"),
        speech: { start: 8, end: 14 },
      }),
      event("ResponseTruncated", "2/i1/cut", 10, "Sales", "2", {
        response_key: "2/i1",
        heard_text: "Hi",
        played_ms: 2000,
      }),
      event("RunCompleted", "completed", 12),
    ];
    const live = buildTimeline(spoken);
    const times = (bar: { from: { time: number }; to: { time: number }; speaker?: string }) => [
      bar.speaker,
      bar.from.time,
      bar.to.time,
    ];
    expect(live.lanes.map((lane) => lane.name)).toEqual(["User", "Desk", "Sales", "Speech"]);
    expect(live.bars.filter((bar) => bar.kind === "speech").map(times)).toEqual([
      ["User", 1, 3],
      ["Desk", 4, 7],
      ["Sales", 8, 10],
    ]);
    // The transfer was at 6, but Desk was heard until 7.
    expect(live.bars.filter((bar) => bar.kind === "gap").map(times)).toEqual([["Sales", 7, 8]]);
    expect(live.notes.filter((note) => note.kind === "cut")).toMatchObject([
      { lane: 3, at: { time: 10 }, text: "interrupted; heard: Hi" },
    ]);
    // A model call begins when the user has spoken, not with the event before.
    expect(live.bars.filter((bar) => bar.kind === "model").map((bar) => bar.from.time)).toEqual([
      3, 6,
    ]);
    for (const bar of live.bars) {
      expect(bar.from.step).toBeLessThanOrEqual(bar.to.step);
      expect(bar.to.step).toBeLessThan(spoken.length);
    }
    expect(drawn.lanes.some((lane) => lane.name === "Speech")).toBe(false);
  });
  test("shows the silence after a transfer also without recorded speech", () => {
    const spoken = [
      log[0]!,
      event("UserMessageAdded", "u1", 0, "", "", {
        item_id: "i1",
        message: { role: "user", content: "hello" },
      }),
      event("AgentStarted", "1", 0, "Desk"),
      event("ControlTransferred", "1/to", 1, "Desk", "1", { source: "Desk", target: "Sales" }),
      event("AgentStarted", "2", 1.2, "Sales", "2"),
      event("AgentResponded", "2/m1", 1.8, "Sales", "2", {
        model: "m",
        message: { role: "assistant", content: "Hi!" },
      }),
      event("ResponseTruncated", "2/m1/cut", 2.5, "Sales", "2", {
        response_key: "2/m1",
        heard_text: "H",
      }),
    ];
    const live = buildTimeline(spoken);
    const gap = live.bars.find((bar) => bar.kind === "gap")!;
    expect(gap.to.time - gap.from.time).toBeCloseTo(0.8);
    expect(live.notes.map((note) => note.kind)).toEqual(["input", "input", "answer", "cut"]);
  });
  test("indents nested agents", () => {
    const nested = buildTimeline([
      log[0]!,
      event("AgentStarted", "1", 0, "Flow"),
      event("AgentStarted", "1/s1", 0, "Step", "1/s1"),
      event("AgentStarted", "1/s1/x/y", 0, "Inner", "1/s1/x/y"),
    ]);
    expect(nested.lanes.map((lane) => lane.depth)).toEqual([0, 0, 1, 2]);
  });
});
