/** The messages of the gateway by their names in the OpenAPI document, and the events as the client hands them on. */
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
/** The parameters of an operation in its query. */
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

export type Job = Schemas["TaskJob"];
export type JobSnapshot = Schemas["OperatorJob"];
export type Manifest = Schemas["Manifest"];
export type SubmitJobResponse = Schemas["SubmitJobResponse"];
export type CreateJobRequest = Schemas["CreateJobRequest"];
export type Task = CreateJobRequest["task"];
export type DeadLetter = Schemas["DeadLetter"];
export type ReplayOutcome = Schemas["ReplayOutcome"];
export type PurgeDeadLettersResponse = Schemas["PurgeDeadLettersResponse"];
export type Flow = Schemas["Flow"];
export type Gate = Schemas["Gate"];
export type StartFlowResponse = Schemas["StartFlowResponse"];
export type PublishEventResponse = Schemas["PublishEventResponse"];
export type Frame = Schemas["Frame"];
export type JobMessage = Partial<Schemas["JobEvent"]> & { data?: any };
export type JobFilter = Omit<Query<"TaskService_ListJobs">, "page_token" | "tenant">;
export type FlowFilter = Omit<Query<"FlowService_ListFlows">, "page_token" | "tenant">;
export type DeadLetterFilter = Omit<Query<"OperatorService_ListDeadLetters">, "page_token">;
export type View = NonNullable<Query<"FlowService_TailFlow">["view"]>;

/** One event of a job. `hello` and `gap` have no id. */
export interface JobEvent {
  id: string | undefined;
  type: string;
  /** When, in milliseconds since 1970; undefined for an event without an id. */
  ts: number | undefined;
  step: string;
  data: any;
}

/** One event of a flow run. */
export type FlowEvent = Omit<Schemas["Event"], "id" | "data" | "meta"> & { id: string; data?: any; meta?: any };

/** What became of one resource of a fetch job: a line of its `results.jsonl`. */
export interface Result {
  resource_id: string;
  state: "stored" | "failed" | "canceled";
  key?: string;
  size?: number;
  sha256?: string;
  content_type?: string;
  final_url?: string;
  http_status?: number;
  attempts?: number;
  error_code?: string;
  error_message?: string;
}
