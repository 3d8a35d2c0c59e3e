/** The log as a list; only the rows in sight exist. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { duration } from "../formats";
import { describe } from "./descriptions";
import { agentOf } from "./events";
import { go, runId } from "../state/place";
import { chosen, log } from "../state/shown-run";
import { tone } from "../state/team";

const ROW = 28;

export function EventList() {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const events = log.value;
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setHeight(entry!.contentRect.height));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = box.current!;
    const y = chosen.value * ROW;
    if (y < element.scrollTop || y > element.scrollTop + element.clientHeight - ROW)
      element.scrollTop = y - element.clientHeight / 2;
  }, [chosen.value, runId.value]);
  const first = Math.max(0, Math.floor(top / ROW) - 6);
  const last = Math.min(events.length, first + Math.ceil(height / ROW) + 12);
  const start = events[0]?.timestamp ?? 0;
  return (
    <div
      class="events"
      ref={box}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      role="listbox"
      aria-label="Events"
      tabIndex={0}
      aria-activedescendant={events.length ? `event-${chosen.value + 1}` : undefined}
    >
      <div class="tall" role="presentation" style={{ height: `${events.length * ROW}px` }}>
        {events.slice(first, last).map((event, offset) => {
          const index = first + offset;
          const [kind, text] = describe(event);
          const agent = agentOf(event);
          return (
            <div
              id={`event-${index + 1}`}
              key={index}
              role="option"
              aria-selected={index === chosen.value}
              class={`row ${kind.replace(" ", "-")} ${tone(agent)}`}
              style={{ top: `${index * ROW}px` }}
              onClick={() => go(runId.value, index + 1)}
            >
              <span class="number">{index + 1}</span>
              <i class="dot" />
              <span class="who">{agent || "run"}</span>
              <span class="kind">{kind}</span>
              <span class="text">{text}</span>
              <span class="at">{duration(Math.max(0, event.timestamp - start))}</span>
            </div>
          );
        })}
      </div>
    </div>
  );
}
