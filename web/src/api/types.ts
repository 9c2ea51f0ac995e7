/** The messages of the API by their short names; the types are generated from the OpenAPI document. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Job = Schemas["OperatorJob"];
export type JobPage = Schemas["OperatorListJobsResponse"];
export type JobCounts = Schemas["OperatorJobCounts"];
export type TaskJob = Schemas["TaskJob"];
export type JobEvent = Schemas["JobEvent"];
export type LogEntry = Schemas["LogEntry"];
export type HealthReport = Schemas["HealthReport"];
export type Partition = Schemas["StreamPartition"];
export type Streams = Schemas["ListStreamsResponse"];
export type Queues = Schemas["ListQueuesResponse"];
export type FileQueue = Schemas["FileQueue"];
export type FileWorker = Schemas["FileWorker"];
export type Breaker = Schemas["Breaker"];
export type Breakers = Schemas["ListBreakersResponse"];
export type DeadLetter = Schemas["DeadLetter"];
export type DeadLetterPage = Schemas["ListDeadLettersResponse"];
export type FileDeadLetter = Schemas["FileDeadLetter"];
export type FileDeadLetterPage = Schemas["ListFileDeadLettersResponse"];
export type ReplayOutcomes = Schemas["ReplayDeadLettersResponse"] | Schemas["ReplayFileDeadLettersResponse"];
export type Purged = Schemas["PurgeDeadLettersResponse"];
export type WorkerStatus = Schemas["WorkerStatus"];
export type Flow = Schemas["Flow"];
export type FlowPage = Schemas["ListFlowsResponse"];
export type Step = Schemas["Step"];
export type Gate = Schemas["Gate"];
export type FlowEvent = Schemas["Event"];
export type Frame = Schemas["Frame"];
export type StepLogs = Schemas["ListStepLogsResponse"];
