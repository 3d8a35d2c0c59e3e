/** A model call, a tool call, a wait or speech as a bar. */
import { count, duration, money } from "../formats";
import { go, runId } from "../state/place";
import { tone } from "../state/team";
import { textWidth } from "../text-width";
import type { Bar } from "./timeline";
import { laneName, laneTop, markChosen, type View } from "./view";

const isSpeech = ({ kind }: Bar): boolean => kind === "speech" || kind === "gap";

/** The top and the height of a bar in its lane; the calls of one response share a row. */
function rowOf(bar: Bar): [top: number, height: number] {
  if (bar.kind === "model") return [11, 19];
  if (isSpeech(bar)) return [bar.speaker === "User" ? 9 : 29, 15];
  if (bar.rows === 1) return [33, 12];
  const height = Math.max(3.5, 12 / Math.min(bar.rows, 3) - 1);
  return [33 + (bar.row % 3) * (height + 1.2), height];
}

function titleOf(bar: Bar, lane: string, speaker: string): string {
  if (bar.kind === "gap") return `silence before ${speaker} speaks`;
  if (bar.kind === "speech") return `${speaker} says: ${bar.label}`;
  return `${lane} · ${bar.kind} ${bar.label}`;
}

export function BarMark({ bar, view }: { bar: Bar; view: View }) {
  const lane = laneName(view, bar.lane);
  const speaker = bar.speaker ?? lane;
  const x = view.x(bar.from);
  const width = Math.max(view.x(bar.to) - x, 2.5);
  const [top, height] = rowOf(bar);
  const y = laneTop(bar.lane) + top;
  const time = duration(bar.to.time - bar.from.time);
  const size = bar.kind === "model" ? 11 : 10;
  const isTimed = bar.kind === "model" || isSpeech(bar);
  const text = isTimed ? time : bar.kind === "wait" ? "waits for you" : bar.label;
  const hasRoom = textWidth(text, size) + 14 <= width && !(bar.kind === "tool" && bar.rows > 1);
  const tokens = bar.tokens ? `${count(bar.tokens)} tokens` : "";
  const title = [titleOf(bar, lane, speaker), time, tokens, bar.cost && money(bar.cost)];
  const colour = speaker === "User" ? "tone0" : tone(speaker);
  return (
    <g
      class={`bar ${bar.kind} ${colour} ${bar.failed ? "failed" : ""} ${markChosen(bar)}`}
      onClick={() => go(runId.value, bar.index + 1)}
    >
      <title>{title.filter(Boolean).join(" · ")}</title>
      <rect x={x} y={y} width={width} height={height} rx={Math.min(4.5, height / 2.4, width / 2)} />
      {hasRoom && (
        <text x={x + 7} y={y + height / 2 + size * 0.36}>
          {text}
        </text>
      )}
    </g>
  );
}
