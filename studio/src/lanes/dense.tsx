/** Many marks as one path for each lane and kind: thousands of them stay a handful of elements. */
import { go, runId } from "../state/place";
import { tone } from "../state/team";
import { LANE } from "./geometry";
import type { Bar, Hop, Stay } from "./timeline";
import { laneName, laneTop, type View } from "./view";

/** A path that grows from left to right; what would be less than `gap` pixels behind its end is left out. */
interface DensePath {
  kind: string;
  lane: number;
  path: string;
  last: number;
}

export function DenseMarks(props: { view: View; bars: Bar[]; stays: Stay[]; hops: Hop[] }) {
  const { view, bars, stays, hops } = props;
  const paths = new Map<string, DensePath>();
  const add = (
    kind: string,
    lane: number,
    [from, to]: [number, number],
    draw: (from: number, to: number) => string,
    gap = 1,
  ): void => {
    const id = `${kind} ${lane}`;
    const known = paths.get(id) ?? { kind, lane, path: "", last: -1e9 };
    if (to - known.last >= gap) {
      known.path += draw(Math.max(from, known.last), to);
      known.last = to;
    }
    paths.set(id, known);
  };
  const extent = ({ from, to }: Stay | Bar): [number, number] => {
    const start = view.x(from);
    return [start, Math.max(view.x(to), start + 1)];
  };
  for (const stay of stays)
    add("stay", stay.lane, extent(stay), box(laneTop(stay.lane) + 7, LANE - 14));
  for (const bar of bars) {
    const [top, height] = bar.kind === "model" ? [11, 19] : [33, 12];
    add(`bar ${bar.kind}`, bar.lane, extent(bar), box(laneTop(bar.lane) + top, height));
  }
  for (const hop of hops) {
    const kind = hop.refused ? "refused" : hop.from < hop.to ? "down" : "up";
    const top = laneTop(Math.min(hop.from, hop.to) + 1) - 8;
    const at = view.x(hop.at);
    add(`hop ${kind}`, hop.to, [at, at + 1], (from) => `M${from.toFixed(1)} ${top}v16`, 4);
  }
  const onClick = (event: MouseEvent): void => {
    const svg = (event.currentTarget as SVGElement).ownerSVGElement!;
    const at = event.clientX - svg.getBoundingClientRect().left;
    const distance = (bar: Bar): number => Math.abs(view.x(bar.from) - at);
    const nearest = bars.reduce((best, bar) => (distance(bar) < distance(best) ? bar : best));
    go(runId.value, nearest.index + 1);
  };
  return (
    <>
      {[...paths.values()].map(({ kind, lane, path }) => (
        <path class={`dense ${kind} ${tone(laneName(view, lane))}`} d={path} onClick={onClick} />
      ))}
    </>
  );
}

const box =
  (top: number, height: number) =>
  (from: number, to: number): string => {
    const width = Math.max(to - from, 1).toFixed(1);
    return `M${from.toFixed(1)} ${top}h${width}v${height}h-${width}z`;
  };
