/** What other history policies would have cost. */
import { useEffect, useState } from "preact/hooks";
import { exported } from "../api/exported";
import { api } from "../api/requests";
import { type RunUsage } from "../api/schemas";
import { count } from "../formats";
import { runId } from "../state/place";

/** What the agents of the whole run would have read with each history policy. */
export function Policies({ current }: { current: string }) {
  const [rows, setRows] = useState<RunUsage["by_policy"]>([]);
  useEffect(() => {
    setRows([]);
    if (!exported)
      void api.runUsage(runId.value).then(
        (usage) => setRows(usage.by_policy),
        () => setRows([]),
      );
  }, [runId.value]);
  const now = rows.find((row) => row.policy === current)?.tokens ?? 0;
  if (!rows.length) return null;
  return (
    <>
      <h2>History policies, messages of the whole run</h2>
      <table class="numbers">
        <tbody>
          {rows.map((row) => (
            <tr>
              <th scope="row">
                {row.policy}
                {row.policy === current ? " (this call)" : ""}
              </th>
              <td>≈ {count(row.tokens)} tokens</td>
              <td>
                {now && row.policy !== current
                  ? `${row.tokens >= now ? "+" : "−"}${Math.abs(Math.round((row.tokens / now - 1) * 100))} %`
                  : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
