/** Tokens and cost of all runs by day, agent, edge, model and tool. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/requests";
import type { UsageReport, UsageRow } from "../api/schemas";
import { Empty } from "../elements";
import { count } from "../formats";
import { attempt } from "../state/problems";
import { UsageTable } from "./usage-table";

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
  const rows: UsageRow[] = report?.by === by ? report.rows : [];
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
      {rows.length > 0 && <UsageTable rows={rows} by={by} key={by} />}
    </main>
  );
}
