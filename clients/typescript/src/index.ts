/** The client of FetchBox for browsers and Node: REST and Server-Sent Events. */
import { Flows } from "./flows.js";
import { Http, type Options } from "./http.js";
import { DeadLetters, Jobs } from "./jobs.js";

export { errorOf, FetchboxError, isFetchboxError, JobFailedError, REASONS } from "./errors.js";
export type { Reason, Violation } from "./errors.js";
export type { Flows, StartOptions, TailOptions } from "./flows.js";
export type { CallOptions, Options } from "./http.js";
export type { Chosen, CreateOptions, DeadLetters, Jobs, KeyOptions, ReadObject, SubmitOptions } from "./jobs.js";
export type { RetryPolicy } from "./retry.js";
export type { components, operations, paths } from "./schema.js";
export { type SseEvent, SseParser } from "./sse.js";
export type { StreamOptions } from "./stream.js";
export type * from "./types.js";

/** Calls a gateway; `base` is its address, for instance `http://127.0.0.1:8080`. */
export class Client {
  readonly jobs: Jobs;
  readonly flows: Flows;
  readonly deadLetters: DeadLetters;

  constructor(base: string, options: Options = {}) {
    const http = new Http(base, options);
    this.jobs = new Jobs(http);
    this.flows = new Flows(http);
    this.deadLetters = new DeadLetters(http);
  }
}
