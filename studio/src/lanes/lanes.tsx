/** The lanes: who held control over time. One SVG of the size of the viewport; only what is in sight is drawn. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { runId } from "../state/place";
import { axis, chosen, timeline, zoom } from "../state/shown-run";
import { textWidth } from "../text-width";
import { Field, type Reach } from "./field";
import { FOOT, LANE, MIN_BAR, PAD, TOP } from "./geometry";
import { isPriced } from "./growth";
import { LaneName } from "./lane-name";
import { stepScale, timeScale } from "./scale";
import type { Lane, Point } from "./timeline";
import { laneTop, type View } from "./view";

const ZOOM = { least: 0.02, most: 64 };
export const zoomBy = (factor: number): void => {
  zoom.value = Math.min(ZOOM.most, Math.max(ZOOM.least, zoom.value * factor));
};

/** The width of the names of the lanes. */
const nameWidth = (lanes: Lane[]): number => {
  const widest = Math.max(...lanes.map(({ name, depth }) => 46 + depth * 12 + textWidth(name, 13)));
  return Math.min(190, Math.max(104, widest));
};

export function Lanes() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(900);
  const [left, setLeft] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry!.contentRect.width));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const drawn = timeline.value;
  const scaleKind = axis.value;
  const names = useMemo(
    () => nameWidth(drawn.lanes),
    [drawn.lanes.length, drawn.lanes.at(-1)?.name],
  );
  const room = Math.max(width - names - PAD * 2, 200);
  const fullWidth = (): number =>
    Math.max(room, Math.max(room, drawn.bars.length * MIN_BAR) * zoom.value);
  const full = fullWidth();
  const scale = useMemo(
    () => (scaleKind === "time" ? timeScale : stepScale)(drawn, full),
    [drawn, full, scaleKind],
  );
  const reach = useMemo((): Reach => {
    const widest = (items: { from: Point; to: Point }[]): number =>
      items.reduce((most, item) => Math.max(most, scale.x(item.to) - scale.x(item.from)), 0);
    return { bars: widest(drawn.bars), stays: widest(drawn.stays) };
  }, [scale]);
  useLayoutEffect(() => {
    const element = box.current!;
    const index = chosen.value;
    if (full <= room + 1) return;
    const bar = drawn.bars.find((each) => each.index >= index);
    const at = bar ? scale.x(bar.to) : full;
    if (at < element.scrollLeft + 30 || at > element.scrollLeft + room - 60)
      element.scrollLeft = at - room / 2;
  }, [chosen.value, full, runId.value]);
  const onWheel = (event: WheelEvent): void => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const element = box.current!;
    const start = element.getBoundingClientRect().left + names + PAD;
    const at = event.clientX - start + element.scrollLeft;
    zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
    const after = fullWidth();
    queueMicrotask(() => {
      element.scrollLeft += at * (after / full - 1);
    });
  };
  useLayoutEffect(() => {
    const element = box.current!;
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  });
  const height = TOP + drawn.lanes.length * LANE + FOOT;
  const x = (at: Point): number => names + PAD + scale.x(at) - left;
  const view: View = { timeline: drawn, x, left: names, width, height };
  return (
    <div
      class="lanes"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label="Timeline"
      onScroll={(event) => setLeft(event.currentTarget.scrollLeft)}
    >
      <div class="track" style={{ width: `${full + names + PAD * 2}px`, height: `${height}px` }}>
        <svg width={width} height={height} role="group" aria-label="Who held control, over time">
          <defs>
            <marker
              id="tip"
              viewBox="0 0 8 8"
              refX="6.6"
              refY="4"
              markerUnits="userSpaceOnUse"
              markerWidth="9"
              markerHeight="9"
              orient="auto-start-reverse"
            >
              <path d="M1 1 6.6 4 1 7" class="tip" />
            </marker>
            <pattern
              id="hatch"
              width="6"
              height="6"
              patternUnits="userSpaceOnUse"
              patternTransform="rotate(45)"
            >
              <rect width="1.4" height="6" class="hatch" />
            </pattern>
            <clipPath id="field">
              <rect x={names} y="0" width={Math.max(width - names, 0)} height={height} />
            </clipPath>
          </defs>
          {[...drawn.lanes.keys(), drawn.lanes.length].map((index) => (
            <line class="rule" x1="0" x2={width} y1={laneTop(index)} y2={laneTop(index)} />
          ))}
          <g clip-path="url(#field)">
            <Field view={view} scale={scale} reach={reach} />
          </g>
          {drawn.lanes.map((lane, index) => (
            <LaneName lane={lane} index={index} room={names} />
          ))}
          <text class="lane quiet" x="30" y={height - FOOT / 2 + 4}>
            {isPriced(drawn) ? "Cost" : "Tokens"}
          </text>
        </svg>
      </div>
    </div>
  );
}
