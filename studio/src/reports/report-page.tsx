/** Reports of test tools, such as the crash laboratory, opened from a file; nothing is sent to the server. */
import { useState } from "preact/hooks";
import { Empty, Problem } from "../elements";
import { count } from "../formats";
import { describe } from "../log/descriptions";
import { agentOf } from "../log/events";
import { type Report, parseReport } from "./report";
import { attempt } from "../state/problems";
import { tone } from "../state/team";

export function ReportPage() {
  const [report, setReport] = useState<Report | null>(null);
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  const open = (file: File | undefined): void => {
    if (file)
      void attempt(async () => {
        setReport(parseReport(await file.text()));
        setName(file.name);
      }, setProblem);
  };
  return (
    <main
      class="page"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        open(event.dataTransfer?.files[0]);
      }}
    >
      <div class="page-head">
        <h1>Reports</h1>
        <label class="attach">
          Open a file
          <input
            type="file"
            accept=".json,application/json"
            onChange={(event) => open(event.currentTarget.files?.[0])}
          />
        </label>
        {name && <code>{name}</code>}
      </div>
      <Problem text={problem} />
      {!report && (
        <p class="lead">
          Open a report that <code>crash_report(…).to_json()</code> made, or drop it here. It stays
          in this browser.
        </p>
      )}
      {report && (
        <>
          <dl class="counts">
            {Object.entries(report.counts).map(([label, value]) => (
              <div>
                <dt>{label}</dt>
                <dd>{Number.isInteger(value) ? count(value) : value.toFixed(2)}</dd>
              </div>
            ))}
          </dl>
          <h2>
            {report.findings.length
              ? `${count(report.findings.length)} with another outcome`
              : "Findings"}
          </h2>
          {!report.findings.length && <Empty>None: the outcome was the same every time.</Empty>}
          {report.findings.slice(0, 200).map((finding) => (
            <section class="msg finding">
              <div class="head">
                <span>{finding.place}</span>
                {finding.event > 0 && (
                  <a
                    href={`#/report`}
                    onClick={() =>
                      document
                        .getElementById(`log-${finding.event}`)
                        ?.scrollIntoView({ block: "center" })
                    }
                  >
                    event {finding.event}
                  </a>
                )}
              </div>
              <pre>
                {finding.lines.slice(0, 40).map((line) => (
                  <span
                    class={line.startsWith("+") ? "added" : line.startsWith("-") ? "withheld" : ""}
                  >
                    {line}
                    {"\n"}
                  </span>
                ))}
              </pre>
            </section>
          ))}
          {report.log.length > 0 && (
            <>
              <h2>The undisturbed run</h2>
              <div class="columns single">
                <ol>
                  {report.log.slice(0, 400).map((event, index) => {
                    const [kind, text] = describe(event);
                    const isPlace = report.findings.some((finding) => finding.event === index + 1);
                    return (
                      <li
                        id={`log-${index + 1}`}
                        class={`${tone(agentOf(event))} ${isPlace ? "differs" : ""}`}
                      >
                        <div class="entry">
                          <span class="number">{index + 1}</span>
                          <i class="dot" />
                          <span class="who">{agentOf(event) || "run"}</span>
                          <span class="kind">{kind}</span>
                          <span class="text">{text}</span>
                        </div>
                      </li>
                    );
                  })}
                </ol>
              </div>
            </>
          )}
        </>
      )}
    </main>
  );
}
