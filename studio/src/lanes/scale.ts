/** The horizontal axis: time with idle parts folded, or steps. Pure. */
import { duration } from "../formats";
import { union } from "./intervals";
import { type Point, type Timeline } from "./timeline";
import { textWidth } from "../text-width";

export const FOLD = 44;

/** The size of the labels of the axis. */
const SIZE = 11;

export interface Tick {
  x: number;
  label: string;
}

export interface Fold {
  x: number;
  seconds: number;
}

export interface Scale {
  x: (at: Point) => number;
  ticks: Tick[];
  folds: Fold[];
  width: number;
}

const STEPS = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600,
];

const label = (seconds: number, step: number): string =>
  seconds >= 60
    ? `${Math.floor(seconds / 60)}m${seconds % 60 ? ` ${+(seconds % 60).toFixed(step < 1 ? 3 : 0)}s` : ""}`
    : step < 1
      ? `${+seconds.toFixed(3)}s`
      : `${Math.round(seconds)}s`;

export function stepScale(timeline: Timeline, width: number): Scale {
  const steps = Math.max(timeline.end.step, 1);
  const per = width / steps;
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => each * per > 70) ?? 2000;
  const ticks: Tick[] = [];
  for (let step = 0; step <= steps; step += every)
    ticks.push({ x: step * per, label: `${step + 1}` });
  return { x: (at) => at.step * per, ticks, folds: [], width };
}

export function timeScale(timeline: Timeline, width: number): Scale {
  const { start, end } = timeline;
  const busy = union(
    timeline.bars
      .filter((bar) => bar.kind !== "wait")
      .map((bar): [number, number] => [bar.from.time, bar.to.time]),
  );
  const idle = Math.max(1.5, busy.reduce((sum, [from, to]) => sum + to - from, 0) * 0.25);
  const cuts: [number, number][] = [];
  let till = start.time;
  for (const [from, to] of [...busy, [end.time, end.time] as [number, number]]) {
    if (from - till > idle) cuts.push([till + idle * 0.05, from - idle * 0.05]);
    till = Math.max(till, to);
  }
  const folded = cuts.reduce((sum, [from, to]) => sum + to - from, 0);
  const span = Math.max(end.time - start.time - folded, 0.01);
  const per = Math.max(width - cuts.length * FOLD, 40) / span;
  const starts: number[] = [];
  let px = 0;
  let from = start.time;
  for (const [a, b] of cuts) {
    px += (a - from) * per;
    starts.push(px);
    px += FOLD;
    from = b;
  }
  const x = ({ time }: Point): number => {
    let low = 0;
    let high = cuts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (cuts[middle]![0] <= time) low = middle + 1;
      else high = middle;
    }
    if (!low) return (time - start.time) * per;
    const [a, b] = cuts[low - 1]!;
    return time < b
      ? starts[low - 1]! + (FOLD * (time - a)) / (b - a)
      : starts[low - 1]! + FOLD + (time - b) * per;
  };
  const step = STEPS.find((each) => each * per > 84) ?? 7200;
  const ticks: Tick[] = [];
  const inCut = (time: number): boolean => cuts.some(([a, b]) => time > a && time < b);
  const folds = cuts.map(([a, b], index) => ({ x: starts[index]! + FOLD / 2, seconds: b - a }));
  // The label of a fold is in the same row.
  const taken = folds.map((fold): [number, number] => [
    fold.x,
    textWidth(duration(fold.seconds), SIZE) / 2 + 6,
  ]);
  const isFree = (at: number, text: string): boolean =>
    taken.every(([middle, half]) => Math.abs(middle - at) > half + textWidth(text, SIZE) / 2);
  for (let time = 0; time <= end.time - start.time;) {
    const cut = cuts.find(([a, b]) => start.time + time > a && start.time + time < b);
    if (cut) {
      time = Math.max(time + step, Math.floor((cut[1] - start.time) / step) * step + step);
      continue;
    }
    const at = x({ time: start.time + time, step: 0 });
    const text = label(+time.toFixed(4), step);
    if (
      !inCut(start.time + time) &&
      (!ticks.length || at - ticks.at(-1)!.x > Math.max(62, textWidth(text, SIZE) + 12)) &&
      isFree(at, text)
    )
      ticks.push({ x: at, label: text });
    time += step;
    if (ticks.length > 20_000) break;
  }
  return { x, ticks, folds, width };
}
