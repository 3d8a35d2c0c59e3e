/** The labels in the lanes: targets of transfers with their input, refusals, and words of the user. */
import { go, runId } from "../state/place";
import { tone } from "../state/team";
import { LANE } from "./geometry";
import { placeLabels, type Label, type Placed } from "./labels";
import type { Bar, Hop, Note, Stay } from "./timeline";
import { laneName, laneTop, type View } from "./view";

export interface Marks {
  stays: Stay[];
  bars: Bar[];
  hops: Hop[];
  notes: Note[];
}
interface LaneLabel extends Label {
  kind: "hop" | "refused" | "note";
  index: number;
  /** The lane that gives the label its colour. */
  lane: number;
  y: number;
}

export function LaneLabels({ view, marks }: { view: View; marks: Marks }) {
  const { hops, notes } = marks;
  const wanted = [
    ...hops.map((hop) => (hop.refused ? refusalLabel(hop, view) : transferLabel(hop, marks, view))),
    ...notes.filter((note) => note.lane === 0).map((note) => wordsLabel(note, view)),
  ];
  const placed = placeLabels(wanted, takenRoom(view, marks), [view.left, view.width - 8]);
  return (
    <>
      {placed.map((label) => (
        <LabelText label={label} view={view} />
      ))}
    </>
  );
}

/** The row between the lane of a refused transfer and the lane that it asked for. */
const refusalGap = (hop: Hop): number => (hop.to > hop.from ? hop.from : hop.from - 1);

function refusalLabel(hop: Hop, view: View): LaneLabel {
  const gap = refusalGap(hop);
  return {
    kind: "refused",
    index: hop.index,
    lane: hop.from,
    row: `gap${gap}`,
    x: view.x(hop.at) - 9,
    y: laneTop(gap + 1) + 3.5,
    align: "end",
    size: 10.5,
    text: `refused: ${hop.label}`,
    rank: 0,
  };
}

function transferLabel(hop: Hop, { stays }: Marks, view: View): LaneLabel {
  const before = stays.filter((each) => each.lane === hop.from && each.from.step <= hop.at.step);
  const stay = before.at(-1);
  const end = stay && stay.to.step <= hop.at.step + 2 ? view.x(stay.to) : 0;
  const target = `→ ${laneName(view, hop.to)}`;
  return {
    kind: "hop",
    index: hop.index,
    lane: hop.to,
    row: `lane${hop.from}`,
    x: Math.max(end, view.x(hop.at)) + 10,
    y: laneTop(hop.from) + LANE / 2 + 4,
    least: target,
    text: [target, hop.label || hop.reason].filter(Boolean).join("  "),
    rank: 1,
  };
}

function wordsLabel(note: Note, view: View): LaneLabel {
  return {
    kind: "note",
    index: note.index,
    lane: 0,
    row: "lane0",
    x: Math.max(view.x(note.at), view.left - 3) + 13,
    y: laneTop(0) + LANE / 2 + 4.5,
    text: note.text.replace(/\s+/g, " "),
    size: 12,
    rank: 0,
  };
}

/** The intervals of each row in which something is drawn. */
function takenRoom(
  { x }: View,
  { stays, bars, hops, notes }: Marks,
): Map<string, [number, number][]> {
  const taken = new Map<string, [number, number][]>();
  const take = (row: string, from: number, to: number): void => {
    const known = taken.get(row);
    if (known) known.push([from, to]);
    else taken.set(row, [[from, to]]);
  };
  for (const stay of stays) take(`lane${stay.lane}`, x(stay.from) - 6, x(stay.to) + 6);
  for (const bar of bars)
    if (bar.kind === "wait") take(`lane${bar.lane}`, x(bar.from), x(bar.to) + 4);
  for (const note of notes) if (note.kind !== "cut") take("lane0", x(note.at) - 7, x(note.at) + 7);
  for (const hop of hops) {
    const at = x(hop.at);
    if (hop.refused) {
      take(`gap${refusalGap(hop)}`, at - 6, at + 6);
      continue;
    }
    const top = Math.min(hop.from, hop.to);
    for (let lane = top; lane < Math.max(hop.from, hop.to); lane++) {
      take(`gap${lane}`, at - 6, at + 6);
      if (lane > top) take(`lane${lane}`, at - 4, at + 4);
    }
  }
  return taken;
}

function LabelText({ label, view }: { label: Placed<LaneLabel>; view: View }) {
  const [target, ...input] = label.shown.split("  ");
  const colour = label.kind === "hop" ? tone(laneName(view, label.lane)) : "";
  return (
    <text
      class={`label ${label.kind} ${colour}`}
      x={label.x}
      y={label.y}
      text-anchor={label.align ?? "start"}
      onClick={() => go(runId.value, label.index + 1)}
    >
      {label.kind === "hop" ? (
        <>
          <tspan>{target}</tspan>
          {input.length > 0 && `  ${input.join("  ")}`}
        </>
      ) : (
        label.shown
      )}
    </text>
  );
}
