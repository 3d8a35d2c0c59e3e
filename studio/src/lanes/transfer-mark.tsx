/** A transfer as an arrow, or a refused one as a cross. */
import { go, runId } from "../state/place";
import { tone } from "../state/team";
import { LANE } from "./geometry";
import type { Hop } from "./timeline";
import { laneName, laneTop, markChosen, type View } from "./view";

export function TransferMark({ hop, view }: { hop: Hop; view: View }) {
  const x = view.x(hop.at);
  const isDown = hop.to > hop.from;
  const from = isDown ? laneTop(hop.from) + LANE - 8 : laneTop(hop.from) + 8;
  const target = laneName(view, hop.to);
  if (hop.refused) {
    const to = from + (isDown ? 8 : -8);
    return (
      <g class={`hop refused ${markChosen(hop)}`} onClick={() => go(runId.value, hop.index + 1)}>
        <title>{`refused: ${hop.label}: ${hop.reason}`}</title>
        <line class="hit" x1={x} x2={x} y1={from} y2={to} />
        <line class="shaft" x1={x} x2={x} y1={from} y2={to} />
        <path class="cross" d={`M${x - 4} ${to - 4}l8 8m0-8l-8 8`} />
      </g>
    );
  }
  // A transfer to itself is an arc above the lane, between the two times in which the agent was active.
  const isLoop = hop.from === hop.to;
  const start = isLoop ? { x: x - 7, y: laneTop(hop.from) + 7 } : { x, y: from };
  const path = isLoop
    ? `M${start.x} ${start.y}c-3-15 17-15 14 0`
    : `M${x} ${from}V${laneTop(hop.to) + (isDown ? 7 : LANE - 7)}`;
  return (
    <g
      class={`hop ${tone(target)} ${markChosen(hop)}`}
      onClick={() => go(runId.value, hop.index + 1)}
    >
      <title>{`${laneName(view, hop.from)} → ${target} ${hop.label}`}</title>
      <path class="hit" d={path} />
      <path class="shaft" d={path} marker-end="url(#tip)" />
      <circle class="root" cx={start.x} cy={start.y} r="2.8" />
    </g>
  );
}
