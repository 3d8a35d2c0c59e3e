/** The page is opened. */
import { effect } from "@preact/signals";
import { exported } from "../api/exported";
import { api } from "../api/requests";
import { loadRun } from "./live-run";
import { go, place, readPlace, runId } from "./place";
import { attempt } from "./problems";
import { loadRuns, runs, watchRuns } from "./runs";
import { detail, log, zoom } from "./shown-run";
import { config, team } from "./team";

export async function open(): Promise<void> {
  addEventListener("hashchange", readPlace);
  if (exported) {
    team.value = exported.team;
    if (place.value.view !== "run") place.value = { view: "run", run: exported.run.id, number: 1 };
    await loadRun(exported.run.id);
    return;
  }
  let shown = "";
  const first =
    place.value.view === "run"
      ? attempt(() => loadRun((shown = runId.value)))
      : Promise.resolve(true);
  effect(() => {
    const run = runId.value;
    if (run && run !== shown) {
      shown = run;
      zoom.value = 1;
      log.value = [];
      detail.value = null;
      void attempt(() => loadRun(run));
    }
  });
  await attempt(async () => {
    [config.value, team.value] = await Promise.all([api.config(), api.team()]);
    if (!config.value.can_write) team.value = { root: "", agents: [], findings: [] };
  });
  await first;
  await attempt(() => loadRuns());
  watchRuns();
  if (place.value.view === "home" && runs.value[0]) go(runs.value[0].id);
}
