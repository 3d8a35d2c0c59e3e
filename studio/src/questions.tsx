/** Open questions of a run, answered in place: approvals with editable arguments, and forms made of JSON schemas. */
import { useState } from "preact/hooks";
import { api } from "./api";
import { agentOf, callText, openInterrupts, question, type Event } from "./model";
import { Chip, Status } from "./parts";
import { attempt, config, detail, log, refreshRun, runId } from "./state";

type Schema = {
  type?: string | string[];
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  title?: string;
  description?: string;
  default?: unknown;
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
};

export function resolve(schema: Schema, root: Schema): Schema {
  if (schema.$ref?.startsWith("#/$defs/"))
    return resolve(root.$defs?.[schema.$ref.slice(8)] ?? {}, root);
  const known = schema.anyOf?.find((each) => each.type !== "null");
  return known ? { ...resolve(known, root), title: schema.title, default: schema.default } : schema;
}

/** The value of a text field for its schema. Throws if a number or JSON is invalid. */
export function fieldValue(text: string, schema: Schema): unknown {
  const type = Array.isArray(schema.type)
    ? schema.type.find((each) => each !== "null")
    : schema.type;
  if (type === "string") return text;
  if (type === "boolean") return text === "true";
  if (type === "integer" || type === "number") {
    const value = Number(text);
    if (text.trim() === "" || Number.isNaN(value)) throw new Error(`“${text}” is not a number`);
    return value;
  }
  return text === "" ? null : JSON.parse(text);
}

function Field({
  name,
  schema,
  value,
  set,
}: {
  name: string;
  schema: Schema;
  value: string;
  set: (text: string) => void;
}) {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  const label = (
    <>
      {schema.title ?? name}
      {schema.description && <small> {schema.description}</small>}
    </>
  );
  if (schema.enum)
    return (
      <label>
        {label}
        <select value={value} onChange={(event) => set(event.currentTarget.value)}>
          <option value="" />
          {schema.enum.map((each) => (
            <option value={typeof each === "string" ? each : JSON.stringify(each)}>
              {String(each)}
            </option>
          ))}
        </select>
      </label>
    );
  if (type === "boolean")
    return (
      <label class="check">
        <input
          type="checkbox"
          checked={value === "true"}
          onChange={(event) => set(String(event.currentTarget.checked))}
        />
        {label}
      </label>
    );
  if (type === "integer" || type === "number")
    return (
      <label>
        {label}
        <input
          type="number"
          step="any"
          value={value}
          onInput={(event) => set(event.currentTarget.value)}
        />
      </label>
    );
  return (
    <label>
      {label}
      <textarea
        rows={type === "string" ? 1 : 3}
        value={value}
        onInput={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}

interface FormProps {
  event: Event;
  isOne: boolean;
  isBusy: boolean;
  ready: unknown;
  answer: (make: () => unknown) => void;
  retract: () => void;
}
/** With several questions, the buttons only keep an answer until all are sent; a change of the form retracts it. */
function QuestionForm({ event, isOne, isBusy, ready, answer, retract }: FormProps) {
  const root = (event.schema ?? {}) as Schema;
  const schema = resolve(root, root);
  const payload = event.payload as { kind?: string } | null;
  const isApproval = !!event.tool_call && payload?.kind === "approval";
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setText] = useState("");
  const [reason, setReason] = useState("");
  const [args, setArgs] = useState<string | null>(null);
  const isRefused =
    ready === false || (ready as { approved?: boolean } | undefined)?.approved === false;
  const pressed = (is: boolean): { "aria-pressed"?: boolean } =>
    isOne ? {} : { "aria-pressed": is };
  const set =
    (name: string) =>
    (value: string): void =>
      setValues({ ...values, [name]: value });
  if (isApproval) {
    return (
      <form
        class="question"
        onInput={retract}
        onSubmit={(submitted) => {
          submitted.preventDefault();
          answer(() =>
            args === null ? true : { approved: true, arguments: JSON.parse(args) as unknown },
          );
        }}
      >
        <p>
          <Status of="suspended" />
          <Chip agent={agentOf(event)} />
          <span>
            asks: allow <code>{callText(event.tool_call!)}</code>?
          </span>
        </p>
        {args !== null && (
          <label>
            Arguments (JSON)
            <textarea
              class="mono"
              rows={3}
              value={args}
              onInput={(input) => setArgs(input.currentTarget.value)}
            />
          </label>
        )}
        <div class="actions">
          <input
            aria-label="Reason for a refusal"
            placeholder="Reason, if you refuse"
            value={reason}
            onInput={(input) => setReason(input.currentTarget.value)}
          />
          <button
            type="button"
            onClick={() => {
              retract();
              setArgs(
                args === null
                  ? JSON.stringify(JSON.parse(event.tool_call!.arguments ?? "{}"), null, 2)
                  : null,
              );
            }}
          >
            {args === null ? "Edit" : "Keep"} arguments
          </button>
          <button
            type="button"
            disabled={isBusy}
            {...pressed(isRefused)}
            onClick={() => answer(() => (reason ? { approved: false, reason } : false))}
          >
            Refuse
          </button>
          <button
            class={isOne ? "primary" : ""}
            disabled={isBusy}
            {...pressed(ready !== undefined && !isRefused)}
          >
            Allow
          </button>
        </div>
      </form>
    );
  }
  const fields = Object.entries(schema.properties ?? {});
  const make = (): unknown => {
    if (fields.length)
      return Object.fromEntries(
        fields
          .filter(([name]) => values[name] !== undefined)
          .map(([name, each]) => [name, fieldValue(values[name]!, resolve(each, root))]),
      );
    if (schema.type || schema.enum)
      return fieldValue(
        text,
        schema.enum ? { type: typeof schema.enum[0] === "string" ? "string" : undefined } : schema,
      );
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return text;
    }
  };
  return (
    <form
      class="question"
      onInput={retract}
      onSubmit={(submitted) => {
        submitted.preventDefault();
        answer(make);
      }}
    >
      <p>
        <Status of="suspended" />
        <Chip agent={agentOf(event)} />
        <span>asks: {question(event)}</span>
      </p>
      {fields.length ? (
        <div class="fields">
          {fields.map(([name, each]) => (
            <Field
              name={name}
              schema={resolve(each, root)}
              value={values[name] ?? ""}
              set={set(name)}
            />
          ))}
        </div>
      ) : (
        <Field
          name="Answer"
          schema={schema.type || schema.enum ? schema : { type: "string" }}
          value={text}
          set={setText}
        />
      )}
      <div class="actions">
        <button class={isOne ? "primary" : ""} disabled={isBusy} {...pressed(ready !== undefined)}>
          Answer
        </button>
      </div>
    </form>
  );
}

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
