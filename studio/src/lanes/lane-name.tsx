/** The name of a lane, to the left of it; nested agents are indented. */
import { tone } from "../state/team";
import { shorten } from "../text-width";
import { LANE } from "./geometry";
import { SPEECH } from "./speech";
import type { Lane } from "./timeline";
import { laneTop } from "./view";

const INDENT = 12;

export function LaneName({ lane, index, room }: { lane: Lane; index: number; room: number }) {
  const middle = laneTop(index) + LANE / 2;
  const indent = lane.depth * INDENT;
  return (
    <g class={index && lane.name !== SPEECH ? tone(lane.name) : "tone0"}>
      {lane.depth > 0 && (
        <path class="nest" d={`M${4 + indent} ${laneTop(index) + 12}v${LANE / 2 - 12}h7`} />
      )}
      <circle class="dot" cx={18 + indent} cy={middle} r="4" />
      <text class="lane" x={30 + indent} y={middle + 4.5}>
        <title>{lane.name}</title>
        {shorten(lane.name, room - 38 - indent, 13)}
      </text>
    </g>
  );
}
