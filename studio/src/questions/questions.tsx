/** Open questions of a run, answered in place. */
import { useState } from "preact/hooks";
import { api } from "../api/requests";
import { Chip, Problem } from "../elements";
import { question } from "../log/descriptions";
import { agentOf, type Event } from "../log/events";
import { openInterrupts } from "../log/interrupts";
import { refreshRun } from "../state/live-run";
import { runId } from "../state/place";
import { attempt } from "../state/problems";
import { detail, log } from "../state/shown-run";
import { config } from "../state/team";
import { Status } from "../status";
import { ApprovalForm } from "./approval-form";
import { isOutcome } from "../log/outcome";
import { OutcomeForm } from "./outcome-form";
import { QuestionForm } from "./question-form";

const isApproval = (event: Event): boolean =>
  !!event.tool_call && (event.payload as { kind?: string } | null)?.kind === "approval";

function formOf(event: Event) {
  if (isApproval(event)) return ApprovalForm;
  return isOutcome(event.payload) ? OutcomeForm : QuestionForm;
}

export function Questions() {
  const [answers, setAnswers] = useState<Record<string, unknown>>({});
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const open = openInterrupts(log.value);
  const ready = open.filter((event) => answers[event.key] !== undefined);
  if (!open.length || detail.value?.status !== "suspended") return null;
  const isOne = open.length === 1;
  // A message about an answer names the question.
  const concerned = open.find((event) => problem.includes(`\`${event.key}\``));
  const send = async (given: Record<string, unknown>): Promise<void> => {
    setBusy(true);
    await attempt(async () => {
      detail.value = await api.answer(runId.value, given);
      setAnswers({});
      await refreshRun(runId.value);
    }, setProblem);
    setBusy(false);
  };
  const answer =
    (key: string) =>
    (made: unknown): void => {
      if (isOne) void send({ [key]: made });
      else setAnswers({ ...answers, [key]: made });
    };
  const retract = (key: string) => (): void => {
    if (answers[key] !== undefined) setAnswers({ ...answers, [key]: undefined });
    if (concerned?.key === key) setProblem("");
  };
  return (
    <div class="questions" role="region" aria-label="Open questions">
      {open.map((event) => {
        if (!config.value.can_write) return <QuestionText event={event} />;
        const Form = formOf(event);
        return (
          <Form
            event={event}
            key={event.key}
            isOne={isOne}
            isBusy={isBusy}
            ready={answers[event.key]}
            problem={event === concerned ? problem : ""}
            answer={answer(event.key)}
            retract={retract(event.key)}
          />
        );
      })}
      {!concerned && <Problem text={problem} />}
      {config.value.can_write && !isOne && (
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

const QuestionText = ({ event }: { event: Event }) => (
  <div class="question">
    <p>
      <Status of="suspended" />
      <Chip agent={agentOf(event)} />
      <span>asks: {question(event)}</span>
    </p>
  </div>
);
