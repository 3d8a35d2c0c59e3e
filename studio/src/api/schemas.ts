/** The types of the HTTP API, from its OpenAPI document. */
import type { components } from "./api-types";

type Schemas = components["schemas"];

export type RunView = Schemas["RunView"];

export type RunDetail = Schemas["RunDetail"];

export type RunSummary = Schemas["RunSummary"];

export type Team = Schemas["TeamDescription"];

export type RequestView = Schemas["RequestView"];

export type HandoffDiff = Schemas["HandoffDiff"];

export type Comparison = Schemas["Comparison"];

export type ReplayVerdict = Schemas["ReplayVerdict"];

export type UsageReport = Schemas["UsageReport"];

export type RunUsage = Schemas["RunUsageView"];

export type UsageRow = Schemas["UsageRow"];

export type ThreadEntry = Schemas["ThreadEntry"];

export type Usage = Schemas["Usage"];
