/** What is drawn in the lanes: only the marks in sight, and merged ones if there are many. */
import { chosen } from "../state/shown-run";
import { tone } from "../state/team";
import { Axis } from "./axis";
import { BarMark } from "./bar-mark";
import { DenseMarks } from "./dense";
import { LANE, MANY } from "./geometry";
import { Growth } from "./growth";
import { inSight } from "./in-sight";
import { LaneLabels } from "./lane-labels";
import { NoteMark } from "./note-mark";
import type { Scale } from "./scale";
import type { Bar, Stay } from "./timeline";
import { TransferMark } from "./transfer-mark";
import { laneName, laneTop, type View } from "./view";

/** The widths of the widest bar and the widest stay. */
export interface Reach {
  bars: number;
  stays: number;
}

export function Field({ view, scale, reach }: { view: View; scale: Scale; reach: Reach }) {
  const { timeline, x, left, width } = view;
  const visible = <T extends Stay | Bar>(items: T[], widest: number): T[] =>
    inSight(items, (item) => x(item.from), widest, left - 20, width + 20).filter(
      (item) => x(item.to) > left - 20,
    );
  const stays = visible(timeline.stays, reach.stays);
  const allBars = visible(timeline.bars, reach.bars);
  const allHops = inSight(timeline.hops, (hop) => x(hop.at), 0, left - 200, width + 20);
  const notes = inSight(timeline.notes, (note) => x(note.at), 0, left - 400, width + 20);
  const isDense = allBars.length > MANY;
  const isShown = ({ index }: { index: number }): boolean => !isDense || index === chosen.value;
  const bars = allBars.filter(isShown);
  const hops = allHops.filter(isShown);
  return (
    <>
      <Axis view={view} scale={scale} />
      {isDense ? (
        <DenseMarks view={view} bars={allBars} stays={stays} hops={allHops} />
      ) : (
        stays.map((stay) => <StayMark stay={stay} view={view} />)
      )}
      {hops.map((hop) => (
        <TransferMark hop={hop} view={view} />
      ))}
      {bars.map((bar) => (
        <BarMark bar={bar} view={view} />
      ))}
      {notes.map((note) => (
        <NoteMark note={note} view={view} />
      ))}
      <LaneLabels view={view} marks={{ stays, bars, hops, notes }} />
      <Growth view={view} />
    </>
  );
}

/** The time in which an agent was active. */
function StayMark({ stay, view }: { stay: Stay; view: View }) {
  const x = view.x(stay.from);
  return (
    <rect
      class={`stay ${tone(laneName(view, stay.lane))}`}
      x={x - 4}
      y={laneTop(stay.lane) + 7}
      width={Math.max(view.x(stay.to) - x, 2) + 8}
      height={LANE - 14}
      rx="7"
    />
  );
}
