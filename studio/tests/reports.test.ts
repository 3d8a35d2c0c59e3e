import { describe, expect, test } from "vitest";
import { parseReport } from "../src/reports/report";

describe("reports", () => {
  test("are parsed, and other files are refused", () => {
    const report = parseReport(
      JSON.stringify({
        format: "baton-report",
        version: 1,
        kind: "crashes",
        counts: { crashes: 3 },
        findings: [{ event: 2, place: "here", lines: ["- a"] }],
      }),
    );
    expect(report.findings[0]!.place).toBe("here");
    expect(report.log).toEqual([]);
    expect(() => parseReport("{}")).toThrow("not a report");
  });
});
