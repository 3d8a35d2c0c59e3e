/** Tokens and cost of all runs by day, agent, edge, model and tool. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/requests";
import { type UsageReport } from "../api/schemas";
import { Empty } from "../elements";
import { count, money } from "../formats";
import { attempt } from "../state/problems";
import { tone } from "../state/team";

const GROUPS = ["day", "agent", "edge", "model", "tool"];

export function UsagePage() {
  const [by, setBy] = useState("day");
  const [days, setDays] = useState(30);
  const [report, setReport] = useState<UsageReport | null>(null);
  useEffect(
    () =>
      void attempt(async () => {
        setReport(await api.usage(by, days ? Math.round(Date.now() / 1000 - days * 86400) : 0));
      }),
    [by, days],
  );
  const rows = report?.by === by ? report.rows : [];
  const tokens = (row: (typeof rows)[number]): number =>
    (row.usage.input_tokens ?? 0) + (row.usage.output_tokens ?? 0);
  const hasCost = rows.some((row) => row.usage.cost);
  const isTool = by === "tool";
  const weight = (row: (typeof rows)[number]): number =>
    isTool ? row.count : hasCost ? (row.usage.cost ?? 0) : tokens(row);
  const failures = isTool ? "errors" : by === "edge" ? "refused" : by === "agent" ? "failures" : "";
  const most = Math.max(1e-9, ...rows.map(weight));
  return (
    <main class="page">
      <div class="page-head">
        <h1>Usage</h1>
        <span class="seg" role="group" aria-label="Group by">
          {GROUPS.map((name) => (
            <button aria-pressed={by === name} onClick={() => setBy(name)}>
              {name}
            </button>
          ))}
        </span>
        <label>
          Over{" "}
          <select value={days} onChange={(event) => setDays(Number(event.currentTarget.value))}>
            <option value="1">a day</option>
            <option value="7">a week</option>
            <option value="30">a month</option>
            <option value="0">all time</option>
          </select>
        </label>
        {report && (
          <small>
            {count(report.runs)} runs{report.is_complete ? "" : " (the newest ones)"}
          </small>
        )}
      </div>
      {rows.length === 0 && <Empty>No usage was recorded.</Empty>}
      {rows.length > 0 && (
        <table class="numbers bars">
          <thead>
            <tr>
              <th>{by}</th>
              <th>{isTool ? "calls" : by === "edge" ? "transfers" : "model calls"}</th>
              {failures && <th>{failures}</th>}
              {!isTool && (
                <>
                  <th>input</th>
                  <th>cached</th>
                  <th>output</th>
                  {hasCost && <th>cost</th>}
                </>
              )}
              <td />
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr class={by === "agent" ? tone(row.name) : ""}>
                <td>
                  {by === "agent" && <i class="dot" />}
                  {row.name}
                </td>
                <td>{count(row.count)}</td>
                {failures && <td class={row.failures ? "bad" : ""}>{count(row.failures)}</td>}
                {!isTool && (
                  <>
                    <td>{count(row.usage.input_tokens ?? 0)}</td>
                    <td>{count(row.usage.cached_tokens ?? 0)}</td>
                    <td>{count(row.usage.output_tokens ?? 0)}</td>
                    {hasCost && <td>{money(row.usage.cost ?? 0)}</td>}
                  </>
                )}
                <td class="meter">
                  <svg width="160" height="8" aria-hidden="true">
                    <rect width={160 * (weight(row) / most)} height="8" rx="3" />
                  </svg>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </main>
  );
}
