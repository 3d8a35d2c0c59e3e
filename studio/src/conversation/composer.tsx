/** The field for a message; sending starts a run or continues a thread. */
import { useState } from "preact/hooks";
import { api } from "../api/requests";
import { type Attachment, inputWith, readFile } from "./attachments";
import { Problem } from "../elements";
import { view } from "../layout/views";
import { go } from "../state/place";
import { attempt } from "../state/problems";

export function Composer({ thread, placeholder }: { thread: string; placeholder: string }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<Attachment[]>([]);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const send = async (): Promise<void> => {
    if (!text.trim()) return;
    setBusy(true);
    const sent = await attempt(async () => {
      const run = await api.start({ input: inputWith(text, files), ...(thread ? { thread } : {}) });
      view.value = "conversation";
      go(run.id);
    }, setProblem);
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
      <Problem text={problem} />
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
