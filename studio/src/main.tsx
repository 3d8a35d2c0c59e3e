import { render } from "preact";
import { useEffect } from "preact/hooks";
import { Conversation, NewRun } from "./chat";
import { Compare } from "./compare";
import { EventList } from "./events";
import { RunHeader } from "./header";
import { Inspector } from "./inspector";
import { Lanes } from "./lanes";
import { exported } from "./api";
import { Questions } from "./questions";
import { ReportPage } from "./report";
import { Sidebar } from "./runs";
import { config, log, open, place, problem, runId, step, stepTransfer, tab } from "./state";
import { RunGraph, TeamPage } from "./team";
import { UsagePage } from "./usage";
import "./studio.css";

const KEYS: Record<string, () => void> = {
  j: () => step(1),
  ArrowDown: () => step(1),
  k: () => step(-1),
  ArrowUp: () => step(-1),
  "]": () => stepTransfer(1),
  "[": () => stepTransfer(-1),
  Home: () => step(-1e9),
  End: () => step(1e9),
  r: () => (tab.value = "read"),
  d: () => (tab.value = "diff"),
  e: () => (tab.value = "event"),
  f: () => {
    if (config.value.can_write) tab.value = "fork";
  },
  "/": () => document.querySelector<HTMLInputElement>(".find input")?.focus(),
};
function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const isArrow = event.key.startsWith("Arrow");
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    target.matches("input, textarea, select") ||
    (isArrow && !!target.closest(".sidebar, .body, .lanes"))
  )
    return;
  const action = KEYS[event.key];
  if (action) {
    action();
    event.preventDefault();
  }
}

function RunPage() {
  useEffect(() => {
    if (log.value.length) requestAnimationFrame(() => performance.mark("painted"));
  }, [log.value]);
  return (
    <main class="run">
      <RunHeader />
      <Questions key={runId.value} />
      <Lanes />
      <div class="below">
        <section class="left" aria-label="Log">
          <RunGraph />
          <EventList />
          {!exported && <Conversation />}
        </section>
        <Inspector />
      </div>
    </main>
  );
}

function App() {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const at = place.value;
  return (
    <div class={exported ? "studio alone" : "studio"}>
      {!exported && <Sidebar />}
      {at.view === "run" && <RunPage />}
      {at.view === "compare" && <Compare first={at.first} second={at.second} />}
      {at.view === "team" && <TeamPage />}
      {at.view === "usage" && <UsagePage />}
      {at.view === "report" && <ReportPage />}
      {at.view === "new" && <NewRun />}
      {at.view === "home" && (
        <main class="page narrow">
          <h1>No runs yet</h1>
          <p class="lead">
            Start one with <code>runner.run(…)</code> on this store
            {config.value.can_write ? (
              <>
                , or <a href="#/new">from here</a>
              </>
            ) : (
              ""
            )}
            .
          </p>
        </main>
      )}
      {problem.value && (
        <div class="problem" role="alert">
          <span>{problem.value}</span>
          <button class="plain" aria-label="Dismiss" onClick={() => (problem.value = "")}>
            ✕
          </button>
        </div>
      )}
    </div>
  );
}

render(<App />, document.getElementById("app")!);
void open();
