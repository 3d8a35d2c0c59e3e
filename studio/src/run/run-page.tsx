/** A run: its head, its questions, and one of its main views beside the details of the chosen event. */
import { useEffect } from "preact/hooks";
import { Conversation } from "../conversation/conversation";
import { Inspector } from "../inspector/inspector";
import { Lanes } from "../lanes/lanes";
import { Separator } from "../layout/separator";
import { isNarrow, isStacked, view } from "../layout/views";
import { EventList } from "../log/event-list";
import { Questions } from "../questions/questions";
import { runId } from "../state/place";
import { log } from "../state/shown-run";
import { RunGraph } from "../team/run-graph";
import { RunHeader } from "./header";

export function RunPage() {
  useEffect(() => {
    if (log.value.length) requestAnimationFrame(() => performance.mark("painted"));
  }, [log.value]);
  const isDetails = isNarrow.value && view.value === "details";
  const isConversation = view.value === "conversation";
  const isTimeline = !isDetails && !isConversation;
  return (
    <main class="run">
      <RunHeader />
      <Questions key={runId.value} />
      {isTimeline && <Lanes />}
      {isTimeline && !isNarrow.value && (
        <Separator pane="lanes" label="Height of the lanes" axis="y" resizes="previous" />
      )}
      <div class="below">
        {isTimeline && (
          <section class="left" aria-label="Log">
            <RunGraph />
            <EventList />
          </section>
        )}
        {isConversation && <Conversation key={runId.value} />}
        {!isNarrow.value && <InspectorBorder />}
        {(!isNarrow.value || isDetails) && <Inspector />}
      </div>
    </main>
  );
}

const InspectorBorder = () =>
  isStacked.value ? (
    <Separator pane="inspector-height" label="Height of the details" axis="y" resizes="next" />
  ) : (
    <Separator pane="inspector-width" label="Width of the details" axis="x" resizes="next" />
  );
