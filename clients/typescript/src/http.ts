/** Calls of the gateway: deadlines, repetitions, and errors by reason. */
import { errorOf, FetchboxError } from "./errors.js";
import { DEFAULT_RETRY, pauseMs, type RetryPolicy, sleep } from "./retry.js";

export interface Options {
  /** A bearer token. */
  token?: string;
  tenant?: string;
  /** The deadline of a call with its repetitions; 30 s. */
  timeoutMs?: number;
  /** How long a stream may say nothing, not even a heartbeat, before it is resumed; 45 s. */
  idleMs?: number;
  retry?: Partial<RetryPolicy>;
  /** Another `fetch`, for instance with a proxy. */
  fetch?: typeof fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export interface Request {
  method: "GET" | "POST";
  path: string;
  query?: Record<string, string | number | readonly string[] | undefined>;
  headers?: Record<string, string>;
  /** Anything that JSON can say; text is sent as it is. */
  body?: unknown;
  /** Whether a repetition after a lost answer does no more than the first one did; true by default. */
  repeatable?: boolean;
  idempotencyKey?: string;
}

export class Http {
  readonly tenant: string;
  readonly idleMs: number;
  readonly retry: RetryPolicy;
  readonly #base: string;
  readonly #token: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(base: string, options: Options) {
    this.#base = base.replace(/\/+$/, "");
    this.#token = options.token ?? "";
    this.tenant = options.tenant ?? "";
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.idleMs = options.idleMs ?? 45_000;
    this.retry = { ...DEFAULT_RETRY, ...options.retry };
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** The answer of a call as JSON. */
  async call<T>(request: Request, { signal }: CallOptions = {}): Promise<T> {
    const deadline = Date.now() + this.#timeoutMs;
    for (let attempt = 1; ; attempt++) {
      const left = Math.max(0, deadline - Date.now());
      const repeatable = request.repeatable ?? true;
      const timeout = AbortSignal.timeout(repeatable ? Math.min(left, this.retry.attemptTimeoutMs) : left);
      try {
        const answer = await this.send(request, signal ? AbortSignal.any([signal, timeout]) : timeout);
        return (await answer.json()) as T;
      } catch (error) {
        const found = this.failure(error, signal);
        found.idempotencyKey = request.idempotencyKey;
        const pause = pauseMs(this.retry, attempt, found);
        const over = attempt >= this.retry.attempts || Date.now() + pause >= deadline;
        if (!repeatable || !found.isPassing || over) throw found;
        await sleep(pause, signal);
      }
    }
  }

  /** One attempt; throws a `FetchboxError` for an answer that is none of success. */
  async send(request: Request, signal: AbortSignal): Promise<Response> {
    const headers = new Headers(request.headers);
    if (this.#token) headers.set("Authorization", `Bearer ${this.#token}`);
    const init: RequestInit = { method: request.method, headers, signal };
    if (request.method === "POST") {
      headers.set("Content-Type", "application/json");
      init.body = typeof request.body === "string" ? request.body : JSON.stringify(request.body ?? {});
    }
    const answer = await this.#fetch(this.#url(request), init);
    if (answer.ok) return answer;
    const body: unknown = await answer.json().catch(() => undefined);
    throw errorOf(body, answer.status, answer.headers.get("Retry-After"));
  }

  /** What was thrown, as an error of FetchBox; throws what the caller's own signal says. */
  failure(error: unknown, signal?: AbortSignal): FetchboxError {
    if (error instanceof FetchboxError) return error;
    signal?.throwIfAborted();
    if (error instanceof DOMException && error.name === "TimeoutError") {
      return new FetchboxError("DEADLINE_EXCEEDED", "the server did not answer in time", { cause: error });
    }
    if (error instanceof SyntaxError) {
      return new FetchboxError("UNKNOWN", "the answer is no JSON: is this a gateway of FetchBox?", { cause: error });
    }
    const text = error instanceof Error ? error.message : String(error);
    return new FetchboxError("CONNECTION_LOST", `${this.#base}: ${text}`, { cause: error });
  }

  #url({ path, query = {} }: Request): string {
    const found = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined && one !== "") found.append(name, String(one));
      }
    }
    return found.size ? `${this.#base}${path}?${found}` : `${this.#base}${path}`;
  }
}
