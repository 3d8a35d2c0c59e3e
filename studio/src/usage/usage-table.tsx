/** The usage of each day, agent, edge, model or tool; a click on the head of a column sorts the rows. */
import { useState } from "preact/hooks";
import type { UsageRow } from "../api/schemas";
import { count, money } from "../formats";
import { tone } from "../state/team";
import { nextOrder, sortRows, type Column, type Order } from "./sorting";

interface UsageColumn extends Column<UsageRow> {
  value: (row: UsageRow) => string | number;
  show?: (value: number) => string;
}

const FAILURES: Record<string, string> = { tool: "errors", edge: "refused", agent: "failures" };
const COUNTS: Record<string, string> = { tool: "calls", edge: "transfers" };

function columnsOf(by: string, rows: UsageRow[]): UsageColumn[] {
  const columns: UsageColumn[] = [
    { name: by, value: (row) => row.name },
    { name: COUNTS[by] ?? "model calls", value: (row) => row.count },
  ];
  const failures = FAILURES[by];
  if (failures) columns.push({ name: failures, value: (row) => row.failures });
  if (by === "tool") return columns;
  columns.push(
    { name: "input", value: (row) => row.usage.input_tokens ?? 0 },
    { name: "cached", value: (row) => row.usage.cached_tokens ?? 0 },
    { name: "output", value: (row) => row.usage.output_tokens ?? 0 },
  );
  if (rows.some((row) => row.usage.cost))
    columns.push({ name: "cost", value: (row) => row.usage.cost ?? 0, show: money });
  return columns;
}

/** What the bars at the end of the rows show. */
function weightOf(by: string, rows: UsageRow[]): (row: UsageRow) => number {
  if (by === "tool") return (row) => row.count;
  if (rows.some((row) => row.usage.cost)) return (row) => row.usage.cost ?? 0;
  return (row) => (row.usage.input_tokens ?? 0) + (row.usage.output_tokens ?? 0);
}

export function UsageTable({ rows, by }: { rows: UsageRow[]; by: string }) {
  const [order, setOrder] = useState<Order | null>(null);
  const columns = columnsOf(by, rows);
  const weight = weightOf(by, rows);
  const most = Math.max(1e-9, ...rows.map(weight));
  const direction = ({ name }: UsageColumn): "ascending" | "descending" | undefined =>
    order?.column !== name ? undefined : order.isDescending ? "descending" : "ascending";
  return (
    <table class="numbers bars">
      <thead>
        <tr>
          {columns.map((column) => (
            <th aria-sort={direction(column)}>
              <button class="sort" onClick={() => setOrder(nextOrder(order, column, rows))}>
                {column.name}
              </button>
            </th>
          ))}
          <td />
        </tr>
      </thead>
      <tbody>
        {sortRows(rows, columns, order).map((row) => (
          <tr class={by === "agent" ? tone(row.name) : ""} key={row.name}>
            {columns.map(({ name, value, show = count }) => {
              const cell = value(row);
              if (typeof cell === "string")
                return (
                  <td>
                    {by === "agent" && <i class="dot" />}
                    {cell}
                  </td>
                );
              return <td class={name === FAILURES[by] && cell ? "bad" : ""}>{show(cell)}</td>;
            })}
            <td class="meter">
              <svg width="160" height="8" aria-hidden="true">
                <rect width={160 * (weight(row) / most)} height="8" rx="3" />
              </svg>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
