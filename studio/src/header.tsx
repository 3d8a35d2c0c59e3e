/** The head of a run: what happened in numbers, errors first, and what can be done with the run. */
import { useState } from "preact/hooks";
import { api, exported } from "./api";
import { copyText, curlOf, pythonOf } from "./copy";
import { count, duration, money, messageOf, textOf, totals, type ReplayVerdict } from "./model";
import { Fact, Status } from "./parts";
import {
  attempt,
  axis,
  config,
  detail,
  go,
  isRunning,
  log,
  refreshRun,
  runId,
  runs,
  timeline,
  zoom,
} from "./state";
import { isLive } from "./timeline";

/** A short name for the team's fingerprint, so that two runs of the same team can be recognised. */
export function fingerprint(prints: Record<string, string> | undefined): string {
  let hash = 0x811c9dc5;
  for (const char of JSON.stringify(prints ?? {}))
    hash = Math.imul(hash ^ char.charCodeAt(0), 0x01000193) >>> 0;
  return hash.toString(16).padStart(8, "0");
}

export function RunHeader() {
  const events = log.value;
  const started = events[0];
  const drawn = timeline.value;
  const sum = totals(events);
  const run = detail.value;
  const status =
    run?.status ?? runs.value.find((each) => each.id === runId.value)?.status ?? "running";
  const failed = events.findLast((event) => event.type === "RunFailed");
  const transfers = drawn.hops.filter((hop) => !hop.refused).length;
  const errors = events.filter(
    (event) => event.type === "ToolReturned" && event.is_error && !event.requested_agent,
  ).length;
  const words =
    (started?.input ?? []).findLast((each) => each.role === "user")?.content ??
    events
      .filter((event) => event.type === "UserMessageAdded")
      .map((event) => messageOf(event)?.content)[0];
  const origin = started?.forked_from?.replace(/@\d+$/, "");
  return (
    <header class="top">
      <div class="headline">
        <div class="title">
          <h1>{textOf(words) || runId.value}</h1>
          <p>
            <Status of={status} />
            <span>{status}</span>
            <code>{runId.value}</code>
            {started?.thread && (
              <span>
                thread <code>{started.thread}</code>
              </span>
            )}
            {origin && (
              <span>
                fork of{" "}
                <a href={`#${origin}`}>
                  <code>{started!.forked_from}</code>
                </a>
                {!exported && (
                  <>
                    {" "}
                    · <a href={`#/compare/${origin}/${runId.value}`}>compare</a>
                  </>
                )}
              </span>
            )}
            {started?.team_fingerprint && (
              <span
                title={Object.entries(started.team_fingerprint)
                  .map(([name, print]) => `${name}: ${print}`)
                  .join("\n")}
              >
                team <code>{fingerprint(started.team_fingerprint)}</code>
              </span>
            )}
          </p>
        </div>
        <dl>
          {errors > 0 && (
            <Fact name="Tool errors">
              <span class="bad">{errors}</span>
            </Fact>
          )}
          <Fact name="Took">
            {duration(drawn.busy)}
            {drawn.waited >= 0.05 && <small> +{duration(drawn.waited)} waiting</small>}
          </Fact>
          <Fact name="Transfers">
            {count(transfers)}
            {drawn.refused > 0 && <small class="bad"> +{drawn.refused} refused</small>}
          </Fact>
          <Fact name="Tokens">{count(sum.tokens)}</Fact>
          {(sum.cost > 0 || sum.unpriced > 0) && (
            <Fact name="Cost">
              {sum.cost > 0 && money(sum.cost)}
              {sum.unpriced > 0 && (
                <small title="The prices of the models of these calls are unknown.">
                  {" "}
                  {sum.cost > 0 && "+"}
                  {count(sum.unpriced)} unpriced
                </small>
              )}
            </Fact>
          )}
        </dl>
      </div>
      {failed && status === "failed" && (
        <button class="failure" onClick={() => go(runId.value, events.indexOf(failed) + 1)}>
          <b>{failed.error_type}</b> {typeof failed.message === "string" ? failed.message : ""}
        </button>
      )}
      <Actions status={status} key={runId.value} />
    </header>
  );
}

function Actions({ status }: { status: string }) {
  const [verdict, setVerdict] = useState<ReplayVerdict | null>(null);
  const [copied, setCopied] = useState("");
  const copy = (name: string, text: string) => (): void => {
    void copyText(text).then(() => {
      setCopied(name);
      setTimeout(() => setCopied(""), 1200);
    });
  };
  const write = config.value.can_write;
  const id = runId.value;
  const [test, setTest] = useState(exported?.test ?? "");
  const isRepeatable = exported
    ? !!test
    : ["completed", "failed", "suspended"].includes(status) && !isLive(log.value);
  // Read before it is needed: a browser lets a page write to the clipboard only straight after a click.
  const onToggle = (event: Event): void => {
    if (!exported && isRepeatable && (event.currentTarget as HTMLDetailsElement).open)
      void attempt(async () => {
        setTest((await api.test(id)).source);
      });
  };
  return (
    <div class="tools-row">
      <span class="seg" role="group" aria-label="Axis">
        <button aria-pressed={axis.value === "time"} onClick={() => (axis.value = "time")}>
          Time
        </button>
        <button aria-pressed={axis.value === "steps"} onClick={() => (axis.value = "steps")}>
          Steps
        </button>
      </span>
      <span class="seg" role="group" aria-label="Zoom">
        <button
          aria-label="Zoom out"
          onClick={() => (zoom.value = Math.max(0.02, zoom.value / 1.5))}
        >
          −
        </button>
        <button title="Reset the zoom" onClick={() => (zoom.value = 1)}>
          {zoom.value === 1 ? "100%" : `${Math.round(zoom.value * 100)}%`}
        </button>
        <button aria-label="Zoom in" onClick={() => (zoom.value = Math.min(64, zoom.value * 1.5))}>
          +
        </button>
      </span>
      {write && isRunning.value && (
        <button
          onClick={() =>
            void attempt(async () => {
              detail.value = await api.cancel(id);
              await refreshRun(id);
            })
          }
        >
          Cancel
        </button>
      )}
      {write && (status === "failed" || status === "cancelled") && (
        <button
          onClick={() =>
            void attempt(async () => {
              detail.value = await api.resume(id);
              await refreshRun(id);
            })
          }
        >
          Resume
        </button>
      )}
      {write && (
        <button
          onClick={() =>
            void attempt(async () => {
              setVerdict(await api.replay(id));
            })
          }
        >
          Replay
        </button>
      )}
      {verdict && (
        <span class={`verdict ${verdict.matches ? "good" : "bad"}`} role="status">
          {verdict.matches ? (
            `replay matches${verdict.message ? `; ${verdict.message}` : ""}`
          ) : (
            <>
              differs
              {verdict.number ? (
                <>
                  {" "}
                  at <a href={`#${id}@${verdict.number}`}>event {verdict.number}</a>
                </>
              ) : (
                ""
              )}
              : {verdict.message}
            </>
          )}
        </span>
      )}
      <span class="space" />
      <details class="menu" onToggle={onToggle}>
        <summary>{copied ? `Copied ${copied}` : "Copy and export"}</summary>
        <div>
          <button onClick={copy("link", `${location.href.split("#")[0]}${location.hash}`)}>
            Copy link
          </button>
          <button onClick={copy("curl", curlOf(log.value))}>Copy as curl</button>
          <button onClick={copy("Python", pythonOf(log.value))}>Copy as Python</button>
          {isRepeatable && (
            <button disabled={!test} onClick={copy("test", test)}>
              Copy as test
            </button>
          )}
          {!exported && (
            <a href={`export/${encodeURIComponent(id)}.html`} download>
              Export as HTML
            </a>
          )}
          {!exported && (
            <a href={`export/${encodeURIComponent(id)}.html?redact`} download>
              Export, redacted
            </a>
          )}
          {!exported && (
            <a href={`api/runs/${encodeURIComponent(id)}/export`} download>
              Export as JSON
            </a>
          )}
        </div>
      </details>
    </div>
  );
}
