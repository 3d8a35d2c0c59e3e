/** The conversation of the shown run, in the words of its user and agents: a main view. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chip, Empty } from "../elements";
import { go, runId } from "../state/place";
import { chosen, detail, isRunning, log, partial } from "../state/shown-run";
import { config } from "../state/team";
import { Composer } from "./composer";
import { conversation, lineAt, type Inside, type Line } from "./lines";

const PAGE = 200;

export function Conversation() {
  const list = useRef<HTMLDivElement>(null);
  const events = log.value;
  const lines = useMemo(() => conversation(events), [events]);
  const [shown, setShown] = useState(PAGE);
  const thread = events[0]?.thread ?? "";
  const isStopped = !!detail.value && !isRunning.value && detail.value.status !== "suspended";
  const canReply = config.value.can_write && !!thread && isStopped;
  useLayoutEffect(() => {
    if (isRunning.value) list.current!.scrollTop = list.current!.scrollHeight;
  }, [lines, partial.value, isRunning.value]);
  useLayoutEffect(() => {
    list.current!.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }, [chosen.value, lines.length === 0]);
  return (
    <section class="chat" aria-label="Conversation">
      <div class="lines" ref={list} tabIndex={0} role="log" aria-label="What was said">
        {lines.length > shown && (
          <button class="unfold" onClick={() => setShown(shown + PAGE)}>
            {lines.length - shown} earlier lines, show {PAGE}
          </button>
        )}
        <Lines lines={lines.slice(-shown)} current={lineAt(lines, chosen.value)} />
        {partial.value && (
          <div class="line agent partial">
            <Chip agent={partial.value.agent} />
            <p>{partial.value.text}</p>
          </div>
        )}
        {!lines.length && <Empty>Nothing was said.</Empty>}
      </div>
      {canReply && <Composer thread={thread} placeholder={`Reply in thread ${thread}`} />}
    </section>
  );
}

function Lines({ lines, current }: { lines: Line[]; current: Line | undefined }) {
  return (
    <>
      {lines.map((line) =>
        line.kind === "inside" ? (
          <InsideLines line={line} current={current} key={`inside ${line.index}`} />
        ) : (
          <WordsLine line={line} isCurrent={line === current} key={`${line.kind} ${line.index}`} />
        ),
      )}
    </>
  );
}

type Words = Exclude<Line, Inside>;
function WordsLine({ line, isCurrent }: { line: Words; isCurrent: boolean }) {
  const link = (
    <a class="number" href={`#${runId.value}@${line.index + 1}`} title="Show this event">
      {line.index + 1}
    </a>
  );
  const current = isCurrent ? ({ "aria-current": "true" } as const) : {};
  const onClick = (): void => {
    if (!getSelection()?.toString()) go(runId.value, line.index + 1);
  };
  if (line.kind === "moved")
    return (
      <div class="line moved" onClick={onClick} {...current}>
        <span>
          {line.from} → {line.to}
        </span>
        {link}
      </div>
    );
  return (
    <div class={`line ${line.who ? "agent" : "user"} ${line.kind}`} onClick={onClick} {...current}>
      {line.who ? <Chip agent={line.who} /> : <b>You</b>}
      {link}
      <p>{line.text}</p>
    </div>
  );
}

/** What nested agents said: folded once they have finished. */
function InsideLines({ line, current }: { line: Inside; current: Line | undefined }) {
  return (
    <details class="inside" open={!line.isFinished}>
      <summary>
        {line.call ? (
          <>
            {line.who} called <code>{line.call}</code>
          </>
        ) : (
          <>Inside {line.who}</>
        )}
        <small>{line.agents.join(", ")}</small>
      </summary>
      <Lines lines={line.lines} current={current} />
    </details>
  );
}
