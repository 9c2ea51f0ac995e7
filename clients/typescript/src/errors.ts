/** What a call was refused with, or failed with: one class, whose `reason` says why. */

/** Every reason of `fetchbox.errors.v1.Reason`, and those that the client finds itself. */
export const REASONS = [
  "INVALID_PAYLOAD",
  "UNAUTHORIZED",
  "UNSUPPORTED_JOB_TYPE",
  "FORBIDDEN",
  "NOT_FOUND",
  "METHOD_NOT_ALLOWED",
  "IDEMPOTENCY_CONFLICT",
  "FAILED_PRECONDITION",
  "GONE",
  "PAYLOAD_TOO_LARGE",
  "UNSUPPORTED_MEDIA_TYPE",
  "RATE_LIMITED",
  "INTERNAL_ERROR",
  "UNAVAILABLE",
  /** The deadline of the call passed. */
  "DEADLINE_EXCEEDED",
  /** The connection failed or broke. */
  "CONNECTION_LOST",
  /** The answer is not one of FetchBox. */
  "UNKNOWN",
] as const;

export type Reason = (typeof REASONS)[number];

/** One broken rule: where, what, and the id of the rule where it has one. */
export interface Violation {
  field: string;
  description: string;
  rule: string;
}

export interface ErrorFacts {
  status?: number;
  violations?: Violation[];
  retryAfterMs?: number | undefined;
  metadata?: Record<string, string>;
  cause?: unknown;
}

/** A call failed. `reason` says why, the message what to do next. */
export class FetchboxError extends Error {
  override readonly name = "FetchboxError";
  /** The HTTP status; 0 where there was no answer. */
  readonly status: number;
  /** Each place of the request that breaks a rule. */
  readonly violations: readonly Violation[];
  /** When to come again, in milliseconds, where the server says so. */
  readonly retryAfterMs: number | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  /** The key of the call: with it the same request may be repeated without making a second job. */
  idempotencyKey: string | undefined;

  constructor(
    readonly reason: Reason,
    message: string,
    facts: ErrorFacts = {},
  ) {
    super(`${reason}: ${message}`, { cause: facts.cause });
    this.status = facts.status ?? 0;
    this.violations = facts.violations ?? [];
    this.retryAfterMs = facts.retryAfterMs;
    this.metadata = facts.metadata ?? {};
  }

  /** Whether the same call may succeed soon. */
  get isPassing(): boolean {
    return PASSING.has(this.reason) || this.status === 502;
  }
}

const PASSING: ReadonlySet<Reason> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED", "CONNECTION_LOST", "RATE_LIMITED"]);

/** Whether an error is one of FetchBox, and of one of these reasons where some are named. */
export function isFetchboxError(error: unknown, ...reasons: Reason[]): error is FetchboxError {
  return error instanceof FetchboxError && (reasons.length === 0 || reasons.includes(error.reason));
}

/** The job whose result was asked for has no result. */
export class JobFailedError extends Error {
  override readonly name = "JobFailedError";

  constructor(
    readonly jobId: string,
    /** `error`, `canceled` or `partial`. */
    readonly jobStatus: string,
    /** Why, a failure code; empty where nothing says. */
    readonly code: string,
    text: string,
  ) {
    super(`job ${jobId} ended as ${jobStatus}: ${code} ${text}`.trimEnd());
  }
}

interface Detail {
  "@type"?: string;
  reason?: string;
  metadata?: Record<string, string>;
  retryDelay?: string;
  fieldViolations?: { field?: string; description?: string; reason?: string }[];
}

/** The error in a body, `google.rpc.Status` as JSON; `status` is that of the answer, 0 for an event of a stream. */
export function errorOf(body: unknown, status: number, retryAfter: string | null = null): FetchboxError {
  const said = (typeof body === "object" && body !== null ? body : {}) as { message?: string; details?: Detail[] };
  const details = Array.isArray(said.details) ? said.details : [];
  const detail = (name: string) => details.find((one) => one["@type"]?.endsWith(`google.rpc.${name}`));
  const info = detail("ErrorInfo");
  const violations = (detail("BadRequest")?.fieldViolations ?? []).map((one) => ({
    field: one.field ?? "",
    description: one.description ?? "",
    rule: one.reason ?? "",
  }));
  return new FetchboxError(reasonOf(info?.reason, status), said.message ?? `HTTP status ${status}`, {
    status,
    violations,
    retryAfterMs: millis(detail("RetryInfo")?.retryDelay) ?? millis(retryAfter),
    metadata: info?.metadata ?? {},
  });
}

function reasonOf(name: string | undefined, status: number): Reason {
  if ((REASONS as readonly (string | undefined)[]).includes(name)) return name as Reason;
  if (status === 504) return "DEADLINE_EXCEEDED";
  return status === 502 || status === 503 ? "UNAVAILABLE" : "UNKNOWN";
}

/** `1.500s` of a detail, or `2` of a header, in milliseconds. */
function millis(text: string | null | undefined): number | undefined {
  const seconds = Number.parseFloat(text ?? "");
  return Number.isNaN(seconds) ? undefined : seconds * 1000;
}
