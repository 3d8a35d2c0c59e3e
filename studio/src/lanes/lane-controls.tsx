/** The axis of the lanes, and how far they are zoomed in. */
import { axis, zoom } from "../state/shown-run";
import { zoomBy } from "./lanes";

export function LaneControls() {
  return (
    <>
      <span class="seg" role="group" aria-label="Axis">
        <button aria-pressed={axis.value === "time"} onClick={() => (axis.value = "time")}>
          Time
        </button>
        <button aria-pressed={axis.value === "steps"} onClick={() => (axis.value = "steps")}>
          Steps
        </button>
      </span>
      <span class="seg" role="group" aria-label="Zoom">
        <button aria-label="Zoom out" onClick={() => zoomBy(1 / 1.5)}>
          −
        </button>
        <button title="Reset the zoom" onClick={() => (zoom.value = 1)}>
          {zoom.value === 1 ? "100%" : `${Math.round(zoom.value * 100)}%`}
        </button>
        <button aria-label="Zoom in" onClick={() => zoomBy(1.5)}>
          +
        </button>
      </span>
    </>
  );
}
