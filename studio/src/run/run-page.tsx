/** A run. */
import { useEffect } from "preact/hooks";
import { exported } from "../api/exported";
import { Conversation } from "../conversation/conversation";
import { Inspector } from "../inspector/inspector";
import { Lanes } from "../lanes/lanes";
import { EventList } from "../log/event-list";
import { Questions } from "../questions/questions";
import { RunHeader } from "./header";
import { runId } from "../state/place";
import { log } from "../state/shown-run";
import { RunGraph } from "../team/run-graph";

export function RunPage() {
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
