/** The growth of cost, or of tokens if nothing has a price, as a line below the lanes. */
import { count, money } from "../formats";
import { FOOT } from "./geometry";
import type { Timeline } from "./timeline";
import type { View } from "./view";

type Step = Timeline["growth"][number];

export const isPriced = ({ growth }: Timeline): boolean => (growth.at(-1)?.cost ?? 0) > 0;

export function Growth({ view }: { view: View }) {
  const { timeline, x, left, width, height } = view;
  const total = timeline.growth.at(-1);
  if (!total) return null;
  const hasCost = isPriced(timeline);
  const value = (step: Step): number => (hasCost ? step.cost : step.tokens);
  const sum = value(total);
  const seen = timeline.growth.findLast((step) => x(step.at) <= width);
  const reached = seen ? value(seen) : 0;
  return (
    <>
      {sum > 0 && <path class="growth" d={stairs(view, (step) => value(step) / sum)} />}
      {reached > 0 && (
        <text
          class="sum"
          x={Math.min(Math.max(x(total.at) + 2, left + 60), width - 6)}
          y={height - FOOT + 13}
          text-anchor="end"
        >
          {hasCost ? money(reached) : count(reached)}
        </text>
      )}
    </>
  );
}

/** The line in sight; steps that are less than a pixel apart are one. */
function stairs({ timeline, x, width, height }: View, share: (step: Step) => number): string {
  const level = (part: number): string => (height - 9 - part * (FOOT - 24)).toFixed(1);
  let before = 0;
  let path = "";
  let lastX = -10;
  for (const step of timeline.growth) {
    const at = x(step.at);
    if (at < -20) {
      before = share(step);
      continue;
    }
    if (!path) path = `M${Math.max(x(timeline.start), -20)} ${level(before)}`;
    if (at - lastX >= 1) {
      path += `H${Math.min(at, width + 20).toFixed(1)}V${level(share(step))}`;
      lastX = at;
    }
    if (at > width) break;
  }
  return path || `M-20 ${level(before)}H${width}`;
}
