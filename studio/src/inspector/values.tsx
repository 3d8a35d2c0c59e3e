/** The run's values as they were at the chosen event. */
import { useMemo } from "preact/hooks";
import { Empty } from "../elements";
import { valuesAt } from "../log/values";
import { chosen, log } from "../state/shown-run";

export function Values() {
  const at = useMemo(() => valuesAt(log.value, chosen.value), [log.value, chosen.value]);
  if (!at.values.size && !at.deleted.length)
    return <Empty>The run had no values at this event.</Empty>;
  const names = [...at.values.keys()].toSorted();
  return (
    <>
      <p class="cache">After event {chosen.value + 1}.</p>
      <dl class="values">
        {names.map((name) => (
          <div class={at.set.has(name) ? "added" : ""}>
            <dt>
              <code>{name}</code>
              {at.set.has(name) && <em class="mark added">set here</em>}
            </dt>
            <dd>
              <pre>{JSON.stringify(at.values.get(name), null, 2)}</pre>
            </dd>
          </div>
        ))}
        {at.deleted.map((name) => (
          <div class="withheld">
            <dt>
              <code>{name}</code>
              <em class="mark withheld">deleted here</em>
            </dt>
            <dd />
          </div>
        ))}
      </dl>
    </>
  );
}
