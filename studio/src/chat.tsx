/** Start a run or continue a thread from the page; the text streams, and the lanes grow with it. */
import { useEffect, useState } from "preact/hooks";
import { api } from "./api";
import { conversation } from "./model";
import { Chip, Empty } from "./parts";
import { attempt, config, detail, go, isRunning, log, partial, runId, team } from "./state";

interface Attachment {
  name: string;
  type: string;
  data: string;
}

async function readFile(file: File): Promise<Attachment> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000)
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return { name: file.name, type: file.type || "application/octet-stream", data: btoa(text) };
}

/** The input of a run: text, or a message with parts if there are files. */
export function inputWith(text: string, files: Attachment[]): unknown {
  if (!files.length) return text;
  const parts = files.map((file) =>
    file.type.startsWith("image/")
      ? { type: "image", data: file.data, media_type: file.type }
      : { type: "file", data: file.data, media_type: file.type, name: file.name },
  );
  return [{ role: "user", content: [{ type: "text", text }, ...parts] }];
}

function Composer({ thread, placeholder }: { thread: string; placeholder: string }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<Attachment[]>([]);
  const [busy, setBusy] = useState(false);
  const send = async (): Promise<void> => {
    if (!text.trim()) return;
    setBusy(true);
    const sent = await attempt(async () => {
      const run = await api.start({ input: inputWith(text, files), ...(thread ? { thread } : {}) });
      go(run.id);
    });
    if (sent) {
      setText("");
      setFiles([]);
    }
    setBusy(false);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <textarea
        aria-label="Message"
        rows={2}
        placeholder={placeholder}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey) {
            event.preventDefault();
            void send();
          }
        }}
      />
      {files.length > 0 && (
        <p class="files">
          {files.map((file) => (
            <code>{file.name}</code>
          ))}
        </p>
      )}
      <div class="actions">
        <label class="attach">
          Attach
          <input
            type="file"
            multiple
            onChange={(event) => {
              const input = event.currentTarget;
              void Promise.all([...(input.files ?? [])].map(readFile)).then((read) => {
                setFiles([...files, ...read]);
                input.value = "";
              });
            }}
          />
        </label>
        <span class="space" />
        <button class="primary" disabled={busy || !text.trim()}>
          Send
        </button>
      </div>
    </form>
  );
}

export function NewRun() {
  const [thread, setThread] = useState("");
  const root = team.value.agents.find((agent) => agent.name === team.value.root);
  return (
    <main class="page narrow">
      <h1>New run</h1>
      <p class="lead">
        Talk to {root ? <Chip agent={root.name} /> : "the team"}
        {root?.description ? ` ${root.description}` : ""}
      </p>
      <label class="field">
        Thread <small>to continue a conversation later; may be empty</small>
        <input
          value={thread}
          onInput={(event) => setThread(event.currentTarget.value)}
          placeholder="customer-42"
        />
      </label>
      <Composer thread={thread} placeholder="What would you like to ask?" />
    </main>
  );
}

/** The conversation of the shown run, in the words of its user and agents. */
export function Conversation() {
  const events = log.value;
  const thread = events[0]?.thread ?? "";
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (isRunning.value) setShown(true);
  }, [runId.value, isRunning.value]);
  const said = conversation(events);
  const canReply =
    config.value.can_write &&
    !!thread &&
    !!detail.value &&
    !isRunning.value &&
    detail.value.status !== "suspended";
  if (!shown)
    return (
      <button class="reveal" onClick={() => setShown(true)} aria-expanded="false">
        Conversation{canReply ? " and reply" : ""}
      </button>
    );
  return (
    <section class="chat" aria-label="Conversation">
      <header>
        <h2>Conversation</h2>
        <button class="plain" onClick={() => setShown(false)} aria-expanded="true">
          Hide
        </button>
      </header>
      <div class="lines" aria-live="polite">
        {said.slice(-60).map((each) => (
          <p
            class={each.who ? "agent" : "user"}
            title={each.agent !== each.who ? each.agent : undefined}
            onClick={() => go(runId.value, each.index + 1)}
          >
            {each.who ? <Chip agent={each.who} /> : <b>You</b>}
            <span>{each.text}</span>
          </p>
        ))}
        {partial.value && (
          <p class="agent partial">
            <Chip agent={partial.value.agent} />
            <span>{partial.value.text}</span>
          </p>
        )}
        {!said.length && <Empty>Nothing was said.</Empty>}
      </div>
      {canReply && <Composer thread={thread} placeholder={`Reply in thread ${thread}`} />}
    </section>
  );
}
