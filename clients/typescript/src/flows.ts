/** Flow runs and their gates. */
import type { CallOptions, Http } from "./http.js";
import type { KeyOptions } from "./jobs.js";
import { listed } from "./pages.js";
import { newKey } from "./retry.js";
import { readStream, type StreamOptions } from "./stream.js";
import type * as types from "./types.js";

const ENDS: ReadonlySet<string> = new Set(["flow.complete", "flow.failed", "flow.cancelled"]);

export interface StartOptions extends KeyOptions {
  /** The id of the run. */
  flowId?: string;
  tags?: string[];
}

export interface TailOptions extends StreamOptions {
  view?: types.View;
  /** Begins with the last so many of what is there. */
  last?: number;
  /** Only kinds that fit one of these, for instance `step.attempt.*` or `flow.**`. */
  kinds?: string[];
}

/** `client.flows`: runs of the configured flows, and their gates. */
export class Flows {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /** Starts a run with `input`; the answer alone has the secrets of its gates. */
  start(
    flow: string,
    input: unknown = null,
    { flowId, tags, idempotencyKey = newKey(), signal }: StartOptions = {},
  ): Promise<types.StartFlowResponse> {
    const body = { flow, input, flowId, tags, tenant: this.#http.tenant };
    const headers = { "Idempotency-Key": idempotencyKey };
    const call = signal ? { signal } : {};
    return this.#http.call({ method: "POST", path: "/v1/flows", headers, body, idempotencyKey }, call);
  }

  /** Reads a run. */
  get(flowId: string, call?: CallOptions): Promise<types.Flow> {
    return this.#http.call({ method: "GET", path: pathOf(flowId), query: this.#tenant }, call);
  }

  /** All runs, newest first. */
  list(filter: types.FlowFilter = {}, call?: CallOptions): AsyncGenerator<types.Flow, void, undefined> {
    return listed<"flows", types.Flow>(this.#http, "/v1/flows", "flows", { ...filter, ...this.#tenant }, call);
  }

  /** The events of a run, live until its end; a lost connection is resumed. */
  tail(
    flowId: string,
    { view, last, kinds, ...call }: TailOptions = {},
  ): AsyncGenerator<types.FlowEvent, void, undefined> {
    const query = { view, last, kinds, ...this.#tenant };
    return readStream(
      this.#http,
      {
        request: { method: "GET", path: `${pathOf(flowId)}/events`, query },
        isLast: (kind) => ENDS.has(kind),
        hasEnded: async (signal) => (await this.get(flowId, signal ? { signal } : {})).status !== "running",
        read: (event) => (JSON.parse(event.data) as types.Frame).record as types.FlowEvent,
      },
      call,
    );
  }

  /** Opens the gate of a step; `payload` is what the step sees. An operator needs no `secret`. */
  approve(
    flowId: string,
    step: string,
    payload: unknown = null,
    { secret, signal }: CallOptions & { secret?: string } = {},
  ): Promise<types.Gate> {
    const body = { payload, secret, tenant: this.#http.tenant };
    return this.#http.call({ method: "POST", path: `${gateOf(flowId, step)}/trigger`, body }, signal ? { signal } : {});
  }

  /** Cancels the gate of a step: the step fails, and with it the run. */
  reject(flowId: string, step: string, call?: CallOptions): Promise<types.Gate> {
    const body = { tenant: this.#http.tenant };
    return this.#http.call({ method: "POST", path: `${gateOf(flowId, step)}/cancel`, body }, call);
  }

  /** Publishes an event: it opens the gates that wait for its kind and key. It is never repeated by itself. */
  signal(kind: string, key = "", data: unknown = null, call?: CallOptions): Promise<types.PublishEventResponse> {
    const body = { event: { kind, data }, key, tenant: this.#http.tenant };
    return this.#http.call({ method: "POST", path: "/v1/events", body, repeatable: false }, call);
  }

  /** Cancels a run; one that has ended stays as it is. */
  cancel(flowId: string, { reason = "", ...call }: CallOptions & { reason?: string } = {}): Promise<types.Flow> {
    const body = { reason, tenant: this.#http.tenant };
    return this.#http.call({ method: "POST", path: `${pathOf(flowId)}/cancel`, body }, call);
  }

  get #tenant(): { tenant: string } {
    return { tenant: this.#http.tenant };
  }
}

function pathOf(flowId: string): string {
  return `/v1/flows/${encodeURIComponent(flowId)}`;
}

function gateOf(flowId: string, step: string): string {
  return `${pathOf(flowId)}/gates/${encodeURIComponent(step)}`;
}
