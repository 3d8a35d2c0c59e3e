/** What the user said, an answer to the user, or an interruption. */
import { go, runId } from "../state/place";
import { tone } from "../state/team";
import { LANE } from "./geometry";
import type { Note } from "./timeline";
import { laneName, laneTop, markChosen, type View } from "./view";

export function NoteMark({ note, view }: { note: Note; view: View }) {
  const x = view.x(note.at);
  const user = laneTop(0) + LANE / 2;
  const colour = note.lane ? tone(laneName(view, note.lane)) : "tone0";
  return (
    <g
      class={`note ${note.kind} ${colour} ${markChosen(note)}`}
      onClick={() => go(runId.value, note.index + 1)}
    >
      <title>{note.text}</title>
      {note.kind === "cut" ? (
        <path class="cross" d={`M${x - 4} ${laneTop(note.lane) + 32.5}l8 8m0-8l-8 8`} />
      ) : (
        <>
          {note.lane > 0 && (
            <path
              class="up"
              d={`M${x} ${laneTop(note.lane) + 7}V${user + 8}`}
              marker-end="url(#tip)"
            />
          )}
          <circle cx={x} cy={user} r="5" />
        </>
      )}
    </g>
  );
}
