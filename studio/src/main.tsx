import { render } from "preact";
import { useEffect } from "preact/hooks";
import { exported } from "./api/exported";
import { Compare } from "./compare/compare-page";
import { NewRun } from "./conversation/new-run";
import { isListOpen } from "./layout/views";
import { onKey } from "./keyboard";
import { ReportPage } from "./reports/report-page";
import { RunPage } from "./run/run-page";
import { ShortcutsDialog } from "./shortcuts-dialog";
import { Sidebar } from "./sidebar/sidebar";
import { open } from "./state/opening";
import { place } from "./state/place";
import { problem } from "./state/problems";
import { config } from "./state/team";
import { TeamPage } from "./team/team-page";
import { UsagePage } from "./usage/usage-page";
import "./styles/studio.css";

function App() {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const at = place.value;
  useEffect(() => {
    isListOpen.value = false;
  }, [at]);
  return (
    <div class={exported ? "studio alone" : "studio"}>
      {problem.value && (
        <div class="problem" role="alert">
          <span>{problem.value}</span>
          <button class="plain" aria-label="Dismiss" onClick={() => (problem.value = "")}>
            ✕
          </button>
        </div>
      )}
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
      <ShortcutsDialog />
    </div>
  );
}

render(<App />, document.getElementById("app")!);

void open();
