/** The axis above the lanes: ticks, and idle time that is folded. */
import { duration } from "../formats";
import { FOOT, TOP } from "./geometry";
import { inSight } from "./in-sight";
import type { Scale } from "./scale";
import type { View } from "./view";

export function Axis({ view, scale }: { view: View; scale: Scale }) {
  const { left, width, height } = view;
  const start = view.x(view.timeline.start);
  const ticks = inSight(scale.ticks, (tick) => start + tick.x, 0, left, width);
  const folds = scale.folds.filter(
    (fold) => start + fold.x > left - 30 && start + fold.x < width + 30,
  );
  return (
    <>
      {ticks.map((tick) => (
        <g class="tick">
          <line x1={start + tick.x} x2={start + tick.x} y1={TOP - 5} y2={height} />
          <text x={start + tick.x} y={17}>
            {tick.label}
          </text>
        </g>
      ))}
      {folds.map((fold) => (
        <g class="fold">
          <rect x={start + fold.x - 18} y={TOP} width="36" height={height - FOOT - TOP} />
          <text x={start + fold.x} y={17}>
            {duration(fold.seconds)}
          </text>
        </g>
      ))}
    </>
  );
}
