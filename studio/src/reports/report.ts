/** The format of reports. */
import { type Event } from "../log/events";

export interface Report {
  format: string;
  version: number;
  kind: string;
  counts: Record<string, number>;
  findings: { event: number; place: string; lines: string[] }[];
  log: Event[];
}

/** Parse a report. Throws if the text is not one. */
export function parseReport(text: string): Report {
  const report = JSON.parse(text) as Partial<Report>;
  if (report.format !== "baton-report" || report.version !== 1)
    throw new Error(
      'this file is not a report of version 1: it needs {"format": "baton-report", "version": 1}',
    );
  return {
    format: report.format,
    version: 1,
    kind: report.kind ?? "",
    counts: report.counts ?? {},
    findings: report.findings ?? [],
    log: report.log ?? [],
  };
}
