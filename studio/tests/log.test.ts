import { describe, expect, test } from "vitest";
import { duration } from "../src/formats";
import { describe as line } from "../src/log/descriptions";
import { textOf, type Event } from "../src/log/events";
import { openInterrupts } from "../src/log/interrupts";
import { totals } from "../src/log/totals";
import { event, log } from "./recorded-log";

describe("log", () => {
  test("finds open interrupts", () => {
    expect(openInterrupts(log.slice(0, 12)).map((each) => each.key)).toEqual(["2/m1.0/ask1"]);
    expect(openInterrupts(log)).toEqual([]);
  });
  test("describes events in a line", () => {
    expect(line(log[2]!)).toEqual(["calls", "go(a: 1)"]);
    expect(line(log[3]!)[0]).toBe("refused");
    expect(line(log[6]!)).toEqual(["transfer", "Desk → Sales"]);
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
