/** A run in the list. */
import { type RunView } from "../api/schemas";
import { ago, duration, money } from "../formats";
import { runId } from "../state/place";
import { tone } from "../state/team";
import { Status } from "../status";

const SHOWN = 9;

/** The agents that held control, as squares, and the one that holds it; not all, so that the list keeps its rhythm. */
function Path({ path, active }: { path: string[]; active: string }) {
  const shown = path.length > SHOWN ? [...path.slice(0, SHOWN - 1), path.at(-1)!] : path;
  return (
    <span class="path">
      {shown.map((agent, index) => (
        <>
          {path.length > SHOWN && index === SHOWN - 1 && <b>…</b>}
          <i class={tone(agent)} title={agent} />
        </>
      ))}
      <em>{active}</em>
    </span>
  );
}

export function RunItem({ run }: { run: RunView }) {
  const summary = run.summary;
  const cost = summary?.usage?.cost ?? 0;
  return (
    <li>
      <a href={`#${run.id}`} aria-current={runId.value === run.id ? "page" : undefined}>
        <Status of={run.status} />
        <span class="what">{summary?.text || run.id}</span>
        <time>{ago(run.updated_at)}</time>
        <Path path={summary?.agents ?? []} active={summary?.active_agent ?? ""} />
        <span class="fee">
          {cost ? money(cost) : duration(Math.max(0, run.updated_at - run.created_at))}
        </span>
      </a>
    </li>
  );
}
