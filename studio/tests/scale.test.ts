import { describe, expect, test } from "vitest";
import { duration } from "../src/formats";
import { FOLD, stepScale, timeScale } from "../src/lanes/scale";
import { buildTimeline } from "../src/lanes/timeline";
import { textWidth } from "../src/text-width";
import { log } from "./recorded-log";

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
