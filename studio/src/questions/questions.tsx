/** Open questions of a run, answered in place. */
import { useState } from "preact/hooks";
import { api } from "../api/requests";
import { Chip } from "../elements";
import { question } from "../log/descriptions";
import { agentOf } from "../log/events";
import { openInterrupts } from "../log/interrupts";
import { QuestionForm } from "./question-form";
import { refreshRun } from "../state/live-run";
import { runId } from "../state/place";
import { attempt } from "../state/problems";
import { detail, log } from "../state/shown-run";
import { config } from "../state/team";
import { Status } from "../status";

export function Questions() {
  const [answers, setAnswers] = useState<Record<string, unknown>>({});
  const [isBusy, setBusy] = useState(false);
  const open = openInterrupts(log.value);
  const ready = open.filter((event) => answers[event.key] !== undefined);
  if (!open.length || detail.value?.status !== "suspended") return null;
  const send = async (given: Record<string, unknown>): Promise<void> => {
    setBusy(true);
    await attempt(async () => {
      detail.value = await api.answer(runId.value, given);
      setAnswers({});
      await refreshRun(runId.value);
    });
    setBusy(false);
  };
  const answer =
    (key: string) =>
    (make: () => unknown): void =>
      void attempt(async () => {
        const made = make();
        if (open.length === 1) await send({ [key]: made });
        else setAnswers({ ...answers, [key]: made });
      });
  const retract = (key: string) => (): void => {
    if (answers[key] !== undefined) setAnswers({ ...answers, [key]: undefined });
  };
  return (
    <div class="questions" role="region" aria-label="Open questions">
      {open.map((event) =>
        config.value.can_write ? (
          <QuestionForm
            event={event}
            key={event.key}
            isOne={open.length === 1}
            isBusy={isBusy}
            ready={answers[event.key]}
            answer={answer(event.key)}
            retract={retract(event.key)}
          />
        ) : (
          <div class="question">
            <p>
              <Status of="suspended" />
              <Chip agent={agentOf(event)} />
              <span>asks: {question(event)}</span>
            </p>
          </div>
        ),
      )}
      {config.value.can_write && open.length > 1 && (
        <div class="actions">
          <span>
            {ready.length} of {open.length} answered
          </span>
          <button
            class="primary"
            disabled={isBusy || !ready.length}
            onClick={() =>
              void send(Object.fromEntries(ready.map((event) => [event.key, answers[event.key]])))
            }
          >
            Send {ready.length === 1 ? "the answer" : "the answers"}
          </button>
        </div>
      )}
    </div>
  );
}
