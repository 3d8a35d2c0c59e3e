/** The lanes: who held control over time. One SVG of the size of the viewport; only what is in sight is drawn. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration, money, count } from "./model";
import { placeLabels, shorten, textWidth, type Label } from "./labels";
import { stepScale, timeScale } from "./scale";
import { axis, chosen, go, runId, timeline, tone, zoom } from "./state";
import { SPEECH, type Bar, type Point, type Timeline } from "./timeline";

const TOP = 28;
const LANE = 54;
const PAD = 26;
const FOOT = 44;
const MIN_BAR = 14;
const MANY = 240;

/** The part of a list, sorted by its start, that can be in sight; `reach` is the width of its widest item. */
function inSight<T>(
  items: T[],
  from: (item: T) => number,
  reach: number,
  left: number,
  right: number,
): T[] {
  const first = (limit: number): number => {
    let low = 0;
    let high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (from(items[middle]!) < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return items.slice(first(left - reach), first(right));
}

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
  const LABEL = useMemo(
    () =>
      Math.min(
        190,
        Math.max(
          104,
          ...drawn.lanes.map((lane) => 46 + lane.depth * 12 + textWidth(lane.name, 13)),
        ),
      ),
    [drawn.lanes.length, drawn.lanes.at(-1)?.name],
  );
  const room = Math.max(width - LABEL - PAD * 2, 200);
  const full = Math.max(room, Math.max(room, drawn.bars.length * MIN_BAR) * zoom.value);
  const scale = useMemo(
    () => (scaleKind === "time" ? timeScale : stepScale)(drawn, full),
    [drawn, full, scaleKind],
  );
  const reach = useMemo(() => {
    const widest = (items: { from: Point; to: Point }[]): number =>
      items.reduce((most, item) => Math.max(most, scale.x(item.to) - scale.x(item.from)), 0);
    return { bars: widest(drawn.bars), stays: widest(drawn.stays) };
  }, [scale]);
  const sx = (at: Point): number => LABEL + PAD + scale.x(at) - left;
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
    const at =
      event.clientX -
      box.current!.getBoundingClientRect().left -
      LABEL -
      PAD +
      box.current!.scrollLeft;
    const before = full;
    zoom.value = Math.min(64, Math.max(0.02, zoom.value * (event.deltaY < 0 ? 1.25 : 0.8)));
    const after = Math.max(room, Math.max(room, drawn.bars.length * MIN_BAR) * zoom.value);
    queueMicrotask(() => {
      if (box.current) box.current.scrollLeft += at * (after / before - 1);
    });
  };
  useLayoutEffect(() => {
    const element = box.current!;
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  });
  const height = TOP + drawn.lanes.length * LANE + FOOT;
  return (
    <div
      class="lanes"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label="Timeline"
      onScroll={(event) => setLeft(event.currentTarget.scrollLeft)}
    >
      <div class="track" style={{ width: `${full + LABEL + PAD * 2}px`, height: `${height}px` }}>
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
              <rect x={LABEL} y="0" width={Math.max(width - LABEL, 0)} height={height} />
            </clipPath>
          </defs>
          {[...drawn.lanes.keys(), drawn.lanes.length].map((index) => (
            <line class="rule" x1="0" x2={width} y1={TOP + index * LANE} y2={TOP + index * LANE} />
          ))}
          <g clip-path="url(#field)">{field(drawn, sx, scale, { width, height, LABEL, reach })}</g>
          {drawn.lanes.map((lane, index) => (
            <g class={index && lane.name !== SPEECH ? tone(lane.name) : "tone0"}>
              {lane.depth > 0 && (
                <path
                  class="nest"
                  d={`M${16 + (lane.depth - 1) * 12} ${TOP + index * LANE + 12}v${LANE / 2 - 12}h7`}
                />
              )}
              <circle
                class="dot"
                cx={18 + lane.depth * 12}
                cy={TOP + index * LANE + LANE / 2}
                r="4"
              />
              <text class="lane" x={30 + lane.depth * 12} y={TOP + index * LANE + LANE / 2 + 4.5}>
                <title>{lane.name}</title>
                {shorten(lane.name, LABEL - 38 - lane.depth * 12, 13)}
              </text>
            </g>
          ))}
          <text class="lane quiet" x="30" y={height - FOOT / 2 + 4}>
            {(drawn.growth.at(-1)?.cost ?? 0) > 0 ? "Cost" : "Tokens"}
          </text>
        </svg>
      </div>
    </div>
  );
}

const isOn = ({ index }: { index: number }): string => (chosen.value === index ? "on" : "");

interface Frame {
  width: number;
  height: number;
  LABEL: number;
  reach: { bars: number; stays: number };
}
function field(
  drawn: Timeline,
  sx: (at: Point) => number,
  scale: { ticks: { x: number; label: string }[]; folds: { x: number; seconds: number }[] },
  { width, height, LABEL, reach }: Frame,
) {
  const y = (lane: number): number => TOP + lane * LANE;
  const offset = sx(drawn.start);
  const base = height - FOOT;
  const ticks = inSight(scale.ticks, (tick) => offset + tick.x, 0, LABEL, width);
  const folds = scale.folds.filter(
    (fold) => offset + fold.x > LABEL - 30 && offset + fold.x < width + 30,
  );
  const stays = inSight(
    drawn.stays,
    (stay) => sx(stay.from),
    reach.stays,
    LABEL - 20,
    width + 20,
  ).filter((stay) => sx(stay.to) > LABEL - 20);
  const all = inSight(drawn.bars, (bar) => sx(bar.from), reach.bars, LABEL - 20, width + 20).filter(
    (bar) => sx(bar.to) > LABEL - 20,
  );
  const isDense = all.length > MANY;
  const bars = isDense ? all.filter((bar) => bar.index === chosen.value) : all;
  const allHops = inSight(drawn.hops, (hop) => sx(hop.at), 0, LABEL - 200, width + 20);
  const hops = isDense ? allHops.filter((hop) => hop.index === chosen.value) : allHops;
  const notes = inSight(drawn.notes, (note) => sx(note.at), 0, LABEL - 400, width + 20);
  const taken = new Map<string, [number, number][]>();
  const take = (row: string, from: number, to: number): void => {
    const known = taken.get(row);
    if (known) known.push([from, to]);
    else taken.set(row, [[from, to]]);
  };
  for (const stay of stays) take(`lane${stay.lane}`, sx(stay.from) - 6, sx(stay.to) + 6);
  for (const bar of bars)
    if (bar.kind === "wait") take(`lane${bar.lane}`, sx(bar.from), sx(bar.to) + 4);
  for (const note of notes)
    if (note.kind !== "cut") take("lane0", sx(note.at) - 7, sx(note.at) + 7);
  for (const hop of hops) {
    const [top, bottom] = [Math.min(hop.from, hop.to), Math.max(hop.from, hop.to)];
    for (let lane = top; lane < bottom; lane++) {
      if (hop.refused) continue;
      take(`gap${lane}`, sx(hop.at) - 6, sx(hop.at) + 6);
      if (lane > top) take(`lane${lane}`, sx(hop.at) - 4, sx(hop.at) + 4);
    }
    if (hop.refused)
      take(`gap${hop.to > hop.from ? hop.from : hop.from - 1}`, sx(hop.at) - 6, sx(hop.at) + 6);
  }
  const wanted: (Label & { kind: string; index: number; lane: number })[] = [];
  for (const hop of hops) {
    const lane = hop.from;
    const stay =
      drawn.stays.length < 4000
        ? stays.filter((each) => each.lane === lane && each.from.step <= hop.at.step).at(-1)
        : undefined;
    const edge = Math.max(
      stay && stay.to.step <= hop.at.step + 2 ? sx(stay.to) + 10 : sx(hop.at) + 10,
      sx(hop.at) + 10,
    );
    if (hop.refused)
      wanted.push({
        kind: "refused",
        index: hop.index,
        lane,
        row: `gap${hop.to > lane ? lane : lane - 1}`,
        x: sx(hop.at) - 9,
        align: "end",
        size: 10.5,
        text: `refused: ${hop.label}`,
        rank: 0,
      });
    else
      wanted.push({
        kind: "hop",
        index: hop.index,
        lane: hop.to,
        row: `lane${lane}`,
        x: edge,
        least: `→ ${drawn.lanes[hop.to]?.name ?? ""}`,
        text: [`→ ${drawn.lanes[hop.to]?.name ?? ""}`, hop.label || hop.reason]
          .filter(Boolean)
          .join("  "),
        rank: 1,
      });
  }
  for (const note of notes)
    if (note.lane === 0)
      wanted.push({
        kind: "note",
        index: note.index,
        lane: 0,
        row: "lane0",
        x: Math.max(sx(note.at), LABEL - 3) + 13,
        text: note.text.replace(/\s+/g, " "),
        size: 12,
        rank: 0,
      });
  const labels = placeLabels(wanted, taken, [LABEL, width - 8]);
  const total = drawn.growth.at(-1);
  const useCost = (total?.cost ?? 0) > 0;
  const sum = total ? (useCost ? total.cost : total.tokens) : 0;
  const seen = drawn.growth.findLast((each) => sx(each.at) <= width);
  const reached = seen ? (useCost ? seen.cost : seen.tokens) : 0;
  const level = (value: number): number => height - 9 - (sum ? (value / sum) * (FOOT - 24) : 0);
  const row = (hop: { from: number; to: number }): number =>
    hop.to > hop.from ? y(hop.from) + LANE - 8 : y(hop.from) + 8;
  return (
    <>
      {ticks.map((tick) => (
        <g class="tick">
          <line x1={offset + tick.x} x2={offset + tick.x} y1={TOP - 5} y2={height} />
          <text x={offset + tick.x} y={17}>
            {tick.label}
          </text>
        </g>
      ))}
      {folds.map((fold) => (
        <g class="fold">
          <rect x={offset + fold.x - 18} y={TOP} width="36" height={base - TOP} />
          <text x={offset + fold.x} y={17}>
            {duration(fold.seconds)}
          </text>
        </g>
      ))}
      {isDense && dense(drawn, all, stays, allHops, sx)}
      {!isDense &&
        stays.map((stay) => (
          <rect
            class={`stay ${tone(drawn.lanes[stay.lane]!.name)}`}
            x={sx(stay.from) - 4}
            y={y(stay.lane) + 7}
            width={Math.max(sx(stay.to) - sx(stay.from), 2) + 8}
            height={LANE - 14}
            rx="7"
          />
        ))}
      {hops.map((hop) => {
        const x = sx(hop.at);
        const down = hop.to > hop.from;
        const from = row(hop);
        const to = hop.refused ? from + (down ? 8 : -8) : y(hop.to) + (down ? 7 : LANE - 7);
        return (
          <g
            class={`hop ${hop.refused ? "refused" : tone(drawn.lanes[hop.to]?.name ?? "")} ${isOn(hop)}`}
            onClick={() => go(runId.value, hop.index + 1)}
          >
            <title>
              {hop.refused
                ? `refused: ${hop.label}: ${hop.reason}`
                : `${drawn.lanes[hop.from]?.name} → ${drawn.lanes[hop.to]?.name} ${hop.label}`}
            </title>
            <line class="hit" x1={x} x2={x} y1={from} y2={to} />
            {hop.from === hop.to && !hop.refused ? (
              <path
                class="shaft"
                d={`M${x} ${from}c10 8 10 -${LANE - 10} 0 -${LANE - 20}`}
                marker-end="url(#tip)"
              />
            ) : (
              <line
                class="shaft"
                x1={x}
                x2={x}
                y1={from}
                y2={to}
                marker-end={hop.refused ? undefined : "url(#tip)"}
              />
            )}
            {hop.refused ? (
              <path class="cross" d={`M${x - 4} ${to - 4}l8 8m0-8l-8 8`} />
            ) : (
              <circle class="root" cx={x} cy={from} r="2.8" />
            )}
          </g>
        );
      })}
      {bars.map((bar) => (
        <BarMark
          bar={bar}
          x={sx(bar.from)}
          end={sx(bar.to)}
          top={y(bar.lane)}
          name={drawn.lanes[bar.lane]!.name}
        />
      ))}
      {notes.map((note) => {
        const x = sx(note.at);
        return (
          <g
            class={`note ${note.kind} ${note.lane ? tone(drawn.lanes[note.lane]!.name) : "tone0"} ${isOn(note)}`}
            onClick={() => go(runId.value, note.index + 1)}
          >
            <title>{note.text}</title>
            {note.kind === "cut" ? (
              <path class="cross" d={`M${x - 4} ${y(note.lane) + 32.5}l8 8m0-8l-8 8`} />
            ) : (
              <>
                {note.lane > 0 && (
                  <path
                    class="up"
                    d={`M${x} ${y(note.lane) + 7}V${y(0) + LANE / 2 + 8}`}
                    marker-end="url(#tip)"
                  />
                )}
                <circle cx={x} cy={y(0) + LANE / 2} r="5" />
              </>
            )}
          </g>
        );
      })}
      {labels.map((label) => {
        const source = label.kind === "hop" ? Number(label.row.slice(4)) : label.lane;
        const ty =
          label.kind === "refused"
            ? y(Number(label.row.slice(3)) + 1) + 3.5
            : label.kind === "hop"
              ? y(source) + LANE / 2 + 4
              : y(0) + LANE / 2 + 4.5;
        const [head, ...tail] = label.kind === "hop" ? label.shown.split("  ") : [label.shown];
        return (
          <text
            class={`label ${label.kind} ${label.kind === "hop" ? tone(drawn.lanes[label.lane]?.name ?? "") : ""}`}
            x={label.x}
            y={ty}
            text-anchor={label.align ?? "start"}
            onClick={() => go(runId.value, label.index + 1)}
          >
            {label.kind === "hop" ? (
              <>
                <tspan>{head}</tspan>
                {tail.length ? `  ${tail.join("  ")}` : ""}
              </>
            ) : (
              head
            )}
          </text>
        );
      })}
      {sum > 0 && <path class="growth" d={growth(drawn, sx, level, useCost, width)} />}
      {reached > 0 && (
        <text
          class="sum"
          x={Math.min(Math.max(sx(total!.at) + 2, LABEL + 60), width - 6)}
          y={base + 13}
          text-anchor="end"
        >
          {useCost ? money(reached) : count(reached)}
        </text>
      )}
    </>
  );
}

function growth(
  drawn: Timeline,
  sx: (at: Point) => number,
  level: (value: number) => number,
  useCost: boolean,
  width: number,
): string {
  const value = (each: { cost: number; tokens: number }): number =>
    useCost ? each.cost : each.tokens;
  let before = 0;
  let path = "";
  let lastX = -10;
  for (const each of drawn.growth) {
    const x = sx(each.at);
    if (x < -20) {
      before = value(each);
      continue;
    }
    if (!path) path = `M${Math.max(sx(drawn.start), -20)} ${level(before)}`;
    if (x - lastX >= 1) {
      path += `H${Math.min(x, width + 20).toFixed(1)}V${level(value(each)).toFixed(1)}`;
      lastX = x;
    }
    if (x > width) break;
  }
  return path || `M-20 ${level(before)}H${width}`;
}

/** Many marks as one path for each lane and kind: thousands of them stay a handful of elements. */
function dense(
  drawn: Timeline,
  bars: Bar[],
  stays: Timeline["stays"],
  hops: Timeline["hops"],
  sx: (at: Point) => number,
) {
  const paths = new Map<string, { name: string; path: string; last: number }>();
  const add = (
    kind: string,
    lane: number,
    from: number,
    to: number,
    draw: (from: number, to: number) => string,
    gap = 1,
  ): void => {
    const id = `${kind} ${lane}`;
    const known = paths.get(id) ?? { name: drawn.lanes[lane]?.name ?? "", path: "", last: -1e9 };
    if (to - known.last >= gap) {
      known.path += draw(Math.max(from, known.last), to);
      known.last = to;
    }
    paths.set(id, known);
  };
  const box =
    (top: number, height: number) =>
    (from: number, to: number): string => {
      const width = Math.max(to - from, 1).toFixed(1);
      return `M${from.toFixed(1)} ${top}h${width}v${height}h-${width}z`;
    };
  for (const stay of stays)
    add(
      "stay",
      stay.lane,
      sx(stay.from),
      Math.max(sx(stay.to), sx(stay.from) + 1),
      box(TOP + stay.lane * LANE + 7, LANE - 14),
    );
  for (const bar of bars)
    add(
      `bar ${bar.kind}`,
      bar.lane,
      sx(bar.from),
      Math.max(sx(bar.to), sx(bar.from) + 1),
      box(TOP + bar.lane * LANE + (bar.kind === "model" ? 11 : 33), bar.kind === "model" ? 19 : 12),
    );
  for (const hop of hops)
    add(
      `hop ${hop.refused ? "refused" : hop.from < hop.to ? "down" : "up"}`,
      hop.to,
      sx(hop.at),
      sx(hop.at) + 1,
      (from) => `M${from.toFixed(1)} ${TOP + (Math.min(hop.from, hop.to) + 1) * LANE - 8}v16`,
      4,
    );
  const onClick = (event: MouseEvent): void => {
    const at =
      event.clientX -
      (event.currentTarget as SVGElement).ownerSVGElement!.getBoundingClientRect().left;
    const nearest = bars.reduce((best, bar) =>
      Math.abs(sx(bar.from) - at) < Math.abs(sx(best.from) - at) ? bar : best,
    );
    go(runId.value, nearest.index + 1);
  };
  return [...paths].map(([id, { name, path }]) => (
    <path class={`dense ${id.replace(/ \d+$/, "")} ${tone(name)}`} d={path} onClick={onClick} />
  ));
}

function BarMark({
  bar,
  x,
  end,
  top,
  name,
}: {
  bar: Bar;
  x: number;
  end: number;
  top: number;
  name: string;
}) {
  const width = Math.max(end - x, 2.5);
  const several = bar.rows > 1;
  const isSpeech = bar.kind === "speech" || bar.kind === "gap";
  const height =
    bar.kind === "model"
      ? 19
      : isSpeech
        ? 15
        : several
          ? Math.max(3.5, 12 / Math.min(bar.rows, 3) - 1)
          : 12;
  const y =
    top +
    (bar.kind === "model"
      ? 11
      : isSpeech
        ? bar.speaker === "User"
          ? 9
          : 29
        : 33 + (several ? (bar.row % 3) * (height + 1.2) : 0));
  const time = duration(bar.to.time - bar.from.time);
  const size = bar.kind === "model" ? 11 : 10;
  const text =
    bar.kind === "model" || isSpeech ? time : bar.kind === "wait" ? "waits for you" : bar.label;
  const speaker = bar.speaker ?? name;
  const title =
    bar.kind === "gap"
      ? `silence before ${speaker} speaks`
      : bar.kind === "speech"
        ? `${speaker} says: ${bar.label}`
        : `${name} · ${bar.kind} ${bar.label}`;
  const inside =
    bar.kind === "tool" && several ? "" : textWidth(text, size) + 14 <= width ? text : "";
  const colour = speaker === "User" ? "tone0" : tone(speaker);
  const tokens = bar.tokens ? `${count(bar.tokens)} tokens` : "";
  return (
    <g
      class={`bar ${bar.kind} ${colour} ${bar.failed ? "failed" : ""} ${isOn(bar)}`}
      onClick={() => go(runId.value, bar.index + 1)}
    >
      <title>
        {[title, time, tokens, bar.cost && money(bar.cost)].filter(Boolean).join(" · ")}
      </title>
      <rect x={x} y={y} width={width} height={height} rx={Math.min(4.5, height / 2.4, width / 2)} />
      {inside && (
        <text x={x + 7} y={y + height / 2 + size * 0.36}>
          {inside}
        </text>
      )}
    </g>
  );
}
