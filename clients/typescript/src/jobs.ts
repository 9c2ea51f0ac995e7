/** Fetch jobs, task jobs and dead letters. */
import { FetchboxError, JobFailedError } from "./errors.js";
import type { CallOptions, Http } from "./http.js";
import { listed } from "./pages.js";
import { newKey, sleep } from "./retry.js";
import { readStream, type StreamOptions } from "./stream.js";
import type * as types from "./types.js";

const ENDS: ReadonlySet<string> = new Set(["done", "error", "canceled"]);
const ENDED: ReadonlySet<string> = new Set(["done", "partial", "error", "canceled"]);
const PAUSE_MS = 200;

export interface KeyOptions extends CallOptions {
  /** Names the request, so that a repetition makes no second job; the client makes a key where none is given. */
  idempotencyKey?: string;
}

export interface SubmitOptions extends KeyOptions {
  jobType?: string;
}

export interface CreateOptions extends KeyOptions {
  /** How long the job and its events are kept after its end, in seconds. */
  ttlSeconds?: number;
}

/** Reads an object of the store by bucket and key, with whatever S3 client and credentials the caller has. */
export type ReadObject = (bucket: string, key: string) => Promise<string>;

/** `client.jobs`: fetch jobs and task jobs. */
export class Jobs {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Submits a manifest, and so creates a fetch job. Text is taken as the document, byte for byte. */
  submit(
    manifest: Omit<types.Manifest, "manifest_version"> | string,
    { jobType = "default", idempotencyKey = newKey(), signal }: SubmitOptions = {},
  ): Promise<types.SubmitJobResponse> {
    const headers: Record<string, string> = {
      "X-Fetchbox-Job-Type": jobType,
      "X-Fetchbox-Idempotency-Key": idempotencyKey,
    };
    if (this.#http.tenant) headers["X-Fetchbox-Tenant"] = this.#http.tenant;
    const body = typeof manifest === "string" ? manifest : { manifest_version: "v1", ...manifest };
    return this.#http.call({ method: "POST", path: "/jobs", headers, body, idempotencyKey }, options(signal));
  }

  /** Creates a task job. */
  create(
    task: types.Task,
    payload: object,
    { ttlSeconds, idempotencyKey = newKey(), signal }: CreateOptions = {},
  ): Promise<types.Job> {
    const body: types.CreateJobRequest = { task, payload };
    if (ttlSeconds !== undefined) body.ttl_s = ttlSeconds;
    const headers = { "Idempotency-Key": idempotencyKey };
    return this.#http.call({ method: "POST", path: "/v1/jobs", headers, body, idempotencyKey }, options(signal));
  }

  /** Reads a job. */
  get(jobId: string, call?: CallOptions): Promise<types.Job> {
    return this.#http.call({ method: "GET", path: `/v1/jobs/${encodeURIComponent(jobId)}` }, call);
  }

  /** All jobs, newest first, without payloads and results. */
  list(filter: types.JobFilter = {}, call?: CallOptions): AsyncGenerator<types.Job, void, undefined> {
    return listed<"jobs", types.Job>(this.#http, "/v1/jobs", "jobs", { ...filter, tenant: this.#http.tenant }, call);
  }

  /** The events of a job, live until its last one; a lost connection is resumed. */
  watch(jobId: string, call: StreamOptions = {}): AsyncGenerator<types.JobEvent, void, undefined> {
    return readStream(
      this.#http,
      {
        request: { method: "GET", path: `/v1/jobs/${encodeURIComponent(jobId)}/events` },
        isLast: (type) => ENDS.has(type),
        hasEnded: async (signal) => ENDED.has((await this.get(jobId, options(signal))).status),
        read: (event) => {
          const { ts, step, data } = JSON.parse(event.data) as types.JobMessage;
          return { id: event.id, type: event.type, ts: Number(ts ?? 0) || undefined, step: step ?? "", data };
        },
      },
      call,
    );
  }

  /** The job, once it has ended. */
  async wait(jobId: string, call: CallOptions = {}): Promise<types.Job> {
    for (;;) {
      for await (const event of this.watch(jobId, call)) void event;
      const job = await this.get(jobId, call);
      if (ENDED.has(job.status)) return job;
      await sleep(PAUSE_MS, call.signal); // workers beside FetchBox write the last event before the record
    }
  }

  /** The result of a task job, once it is done; throws a `JobFailedError` where it has none. */
  async result<T = unknown>(jobId: string, call?: CallOptions): Promise<T> {
    const job = await this.wait(jobId, call);
    if (job.status === "done") return job.result as T;
    const error = (job.error ?? {}) as { code?: string; message?: string };
    throw new JobFailedError(jobId, job.status, error.code ?? "", error.message ?? "");
  }

  /** Cancels a job; one that has ended stays as it is. */
  cancel(jobId: string, call?: CallOptions): Promise<types.Job> {
    return this.#http.call({ method: "POST", path: `/v1/jobs/${encodeURIComponent(jobId)}/cancel` }, call);
  }

  /** A job as operators see it: its counts, and where manifest and results are. Needs an operator's token. */
  snapshot(jobId: string, call?: CallOptions): Promise<types.JobSnapshot> {
    return this.#http.call({ method: "GET", path: `/operators/jobs/${encodeURIComponent(jobId)}` }, call);
  }

  /** What became of each resource of a fetch job that has ended. `read` reads from the object store. */
  async results(jobId: string, read: ReadObject, call?: CallOptions): Promise<types.Result[]> {
    const { results_key: place } = await this.snapshot(jobId, call);
    if (!place) {
      const text = `job ${jobId} has no results: it has not ended, or is no fetch job`;
      throw new FetchboxError("FAILED_PRECONDITION", text);
    }
    const [bucket = "", ...key] = place.replace("s3://", "").split("/");
    const lines = (await read(bucket, key.join("/"))).split("\n");
    return lines.filter(Boolean).map((line) => JSON.parse(line) as types.Result);
  }
}

export interface Chosen extends CallOptions {
  /** `DeadLetter.position` of each, at most 500. */
  positions?: string[];
  /** All of this job, where `positions` is empty. */
  jobId?: string;
}

/** `client.deadLetters`: what failed for good and waits for an operator. Needs an operator's token. */
export class DeadLetters {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** All dead letters, newest first. */
  list(filter: types.DeadLetterFilter = {}, call?: CallOptions): AsyncGenerator<types.DeadLetter, void, undefined> {
    return listed<"dead_letters", types.DeadLetter>(this.#http, "/operators/dlq", "dead_letters", { ...filter }, call);
  }

  /** Replays dead letters; each has its own outcome. */
  async replay({ positions = [], jobId = "", force = false, signal }: Chosen & { force?: boolean }): Promise<
    types.ReplayOutcome[]
  > {
    const body = { positions, job_id: jobId, force };
    const request = { method: "POST", path: "/operators/dlq:replay", body } as const;
    return (await this.#http.call<{ outcomes: types.ReplayOutcome[] }>(request, options(signal))).outcomes;
  }

  /** Deletes dead letters: those named, of one job, or that failed before a time. At most 500 a call. */
  purge({ positions = [], jobId = "", before, signal }: Chosen & { before?: Date }): Promise<
    types.PurgeDeadLettersResponse
  > {
    const body = { positions, job_id: jobId, before_ms: String(before?.getTime() ?? 0) };
    return this.#http.call({ method: "POST", path: "/operators/dlq:purge", body }, options(signal));
  }
}

function options(signal: AbortSignal | undefined): CallOptions {
  return signal ? { signal } : {};
}
