import { describe, expect, test } from "vitest";
import { curlOf } from "../src/copy";
import { placeLabels, shorten, textWidth, type Label } from "../src/labels";
import {
  conversation,
  describe as line,
  duration,
  openInterrupts,
  speakers,
  textOf,
  totals,
  type Event,
} from "../src/model";
import { parseReport } from "../src/reports";
import { FOLD, stepScale, timeScale } from "../src/scale";
import { buildTimeline } from "../src/timeline";

const event = (
  type: string,
  key: string,
  at: number,
  agent = "",
  id = "1",
  more: Partial<Event> = {},
): Event => ({ type, key, timestamp: at, origin: [agent ? id : "", agent, null], ...more });
const call = (name: string, args = "{}") => ({ id: `c-${name}`, name, arguments: args });
const log: Event[] = [
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

describe("scale", () => {
  const drawn = buildTimeline(log);
  test("folds an hour of waiting to 44 pixels", () => {
    const scale = timeScale(drawn, 1000);
    expect(scale.folds).toHaveLength(1);
    const x = (time: number) => scale.x({ time, step: 0 });
    expect(x(3600) - x(10)).toBeLessThan(FOLD);
    expect(x(3605)).toBeCloseTo(1000, 0);
    for (const [a, b] of [
      [0, 1],
      [1, 3],
      [3, 3603],
      [3603, 3605],
    ])
      expect(x(a!)).toBeLessThan(x(b!));
  });
  test("has ticks that overlap neither each other nor a fold", () => {
    for (const width of [300, 600, 1000, 4000]) {
      const { ticks, folds } = timeScale(drawn, width);
      const boxes = [
        ...ticks.map((tick) => [tick.x, textWidth(tick.label, 11)] as const),
        ...folds.map((fold) => [fold.x, textWidth(duration(fold.seconds), 11)] as const),
      ].toSorted((a, b) => a[0] - b[0]);
      for (let index = 1; index < boxes.length; index++)
        expect(boxes[index]![0] - boxes[index]![1] / 2).toBeGreaterThan(
          boxes[index - 1]![0] + boxes[index - 1]![1] / 2,
        );
      expect(new Set(ticks.map((tick) => tick.label)).size).toBe(ticks.length);
    }
  });
  test("draws an open question without an invented time", () => {
    const waiting = buildTimeline([
      ...log.slice(0, 3),
      ...log.slice(8, 12).map((each) => ({ ...each, timestamp: each.timestamp + 7200 })),
    ]);
    const wait = waiting.bars.find((bar) => bar.kind === "wait")!;
    expect(wait.to.time - wait.from.time).toBeLessThan(1);
  });
  test("counts steps", () => expect(stepScale(drawn, 180).x({ time: 0, step: 9 })).toBeCloseTo(90));
});

describe("labels", () => {
  test("never overlap each other or what is drawn", () => {
    let seed = 7;
    const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let round = 0; round < 200; round++) {
      const labels: Label[] = Array.from({ length: 40 }, () => ({
        row: `${Math.floor(random() * 3)}`,
        x: random() * 1000,
        text: "→ Refunds reason: refund".slice(0, 4 + random() * 20),
        align: random() < 0.3 ? "end" : "start",
      }));
      const taken = new Map<string, [number, number][]>([
        [
          "0",
          [
            [200, 260],
            [500, 520],
          ],
        ],
      ]);
      const boxes = placeLabels(labels, taken, [0, 1000]).map((each) => ({
        row: each.row,
        from: each.align === "end" ? each.x - each.width : each.x,
        to: each.align === "end" ? each.x : each.x + each.width,
      }));
      for (const a of boxes) {
        for (const b of boxes)
          if (a !== b && a.row === b.row) expect(a.to <= b.from || b.to <= a.from).toBe(true);
        if (a.row === "0")
          for (const [from, to] of taken.get("0")!) expect(a.to <= from || a.from >= to).toBe(true);
      }
    }
  });
  test("are left out if they begin outside", () => {
    expect(
      placeLabels(
        [
          { row: "0", x: 40, text: "→ Refunds" },
          { row: "1", x: 140, text: "→ Refunds" },
        ],
        new Map(),
        [100, 500],
      ).map((each) => each.row),
    ).toEqual(["1"]);
  });
  test("are shortened to their room", () => {
    expect(shorten("short", 100)).toBe("short");
    expect(textWidth(shorten("a rather long label that does not fit", 80))).toBeLessThanOrEqual(80);
  });
});

describe("model", () => {
  test("finds open interrupts", () => {
    expect(openInterrupts(log.slice(0, 12)).map((each) => each.key)).toEqual(["2/m1.0/ask1"]);
    expect(openInterrupts(log)).toEqual([]);
  });
  test("describes events in a line", () => {
    expect(line(log[2]!)).toEqual(["calls", "go(a: 1)"]);
    expect(line(log[3]!)[0]).toBe("refused");
    expect(line(log[6]!)).toEqual(["transfer", "Desk → Sales"]);
  });
  test("lets agents inside another speak for the one that holds control, and agents as tools not at all", () => {
    const said = (text: string) => ({ message: { role: "assistant", content: text } });
    const nested = [
      log[0]!,
      event("AgentStarted", "1", 0, "Flow"),
      event("AgentStarted", "1/0/1/start", 0, "Step", "1/0/1"),
      event("AgentResponded", "1/0/1/m1", 1, "Step", "1/0/1", said("first")),
      event("AgentStarted", "1/1/1/start", 1, "Desk", "1/1/1"),
      event("AgentResponded", "1/1/1/m1", 1, "Desk", "1/1/1", {
        message: { role: "assistant", tool_calls: [call("pick")] },
      }),
      event("AgentStarted", "1/1/1/m1.0/1/start", 1, "Pick", "1/1/1/m1.0/1", {
        opens: { kind: "new" },
      }),
      event("AgentStarted", "1/1/1/m1.0/2/start", 1, "Pick2", "1/1/1/m1.0/2"),
      event("AgentResponded", "1/1/1/m1.0/2/m1", 1, "Pick2", "1/1/1/m1.0/2", said("red")),
      event("AgentResponded", "1/1/1/m2", 2, "Desk", "1/1/1", said("last")),
      event("AgentStarted", "2", 2, "Closer", "2"),
      event("AgentResponded", "2/m1", 3, "Closer", "2", said("bye")),
    ];
    expect(conversation(nested).map(({ who, text }) => [who, text])).toEqual([
      ["", "hi"],
      ["Flow", "first"],
      ["Flow", "last"],
      ["Closer", "bye"],
    ]);
    expect(speakers(nested)(["1/1/1/m1.0/2", "Pick2", null])).toBeNull();
  });
  test("shows structured content as JSON", () =>
    expect(textOf([{ type: "data", value: { a: 1 } }])).toBe('{"a":1}'));
  test("shows content as text", () =>
    expect(
      textOf([
        { type: "text", text: "<b>x</b>" },
        { type: "image" },
        { type: "file", name: "a.txt" },
      ]),
    ).toBe("<b>x</b> [image] [a.txt]"));
  test("counts calls without a price instead of letting them cost nothing", () => {
    const used = (more: object) =>
      event("AgentResponded", "m", 1, "A", "1", {
        usage: { input_tokens: 5, output_tokens: 1, ...more } as Event["usage"],
      });
    expect(totals([used({ cost: 0.5 }), used({ unpriced_calls: 1 })])).toEqual({
      tokens: 12,
      cost: 0.5,
      cached: 0,
      unpriced: 1,
    });
  });
  test("shows durations", () =>
    expect([0.0204, 5.25, 65, 3700, 200000].map(duration)).toEqual([
      "20 ms",
      "5.3 s",
      "1 m 5 s",
      "1 h 2 m",
      "2 d",
    ]));
});

describe("reports", () => {
  test("are parsed, and other files are refused", () => {
    const report = parseReport(
      JSON.stringify({
        format: "baton-report",
        version: 1,
        kind: "crashes",
        counts: { crashes: 3 },
        findings: [{ event: 2, place: "here", lines: ["- a"] }],
      }),
    );
    expect(report.findings[0]!.place).toBe("here");
    expect(report.log).toEqual([]);
    expect(() => parseReport("{}")).toThrow("not a report");
  });
});

describe("copy", () => {
  test("makes a curl command that the shell cannot break out of", () => {
    const said = [{ ...log[0]!, input: [{ role: "user", content: "it's" }] }];
    expect(curlOf(said)).toContain(`-d '{"input":"it'\\''s"}'`);
  });
});
