/** What can be done with a run. */
import { useState } from "preact/hooks";
import { exported } from "../api/exported";
import { api } from "../api/requests";
import { type ReplayVerdict } from "../api/schemas";
import { LaneControls } from "../lanes/lane-controls";
import { view } from "../layout/views";
import { ViewSwitch } from "../layout/view-switch";
import { isLive } from "../lanes/speech";
import { copyText, curlOf, pythonOf } from "./copy";
import { refreshRun } from "../state/live-run";
import { runId } from "../state/place";
import { attempt } from "../state/problems";
import { detail, isRunning, log } from "../state/shown-run";
import { config } from "../state/team";

export function Actions({ status }: { status: string }) {
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
      <ViewSwitch />
      {view.value !== "conversation" && <LaneControls />}
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
