/** The part of the lanes that is shown, and where things are in it. */
import { chosen } from "../state/shown-run";
import { LANE, TOP } from "./geometry";
import type { Point, Timeline } from "./timeline";

export interface View {
  timeline: Timeline;
  /** The place of a point in the shown part. */
  x: (at: Point) => number;
  /** The place at which the names of the lanes end. */
  left: number;
  width: number;
  height: number;
}

/** The top of a lane. */
export const laneTop = (lane: number): number => TOP + lane * LANE;

export const laneName = ({ timeline }: View, lane: number): string =>
  timeline.lanes[lane]?.name ?? "";

/** The class of a mark that belongs to the chosen event. */
export const markChosen = ({ index }: { index: number }): string =>
  chosen.value === index ? "on" : "";
