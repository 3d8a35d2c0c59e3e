/** The page that starts a run. */
import { useState } from "preact/hooks";
import { Composer } from "./composer";
import { Chip } from "../elements";
import { team } from "../state/team";

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
