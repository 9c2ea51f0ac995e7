/** When a call is repeated, and how long that is waited for. */
import type { FetchboxError } from "./errors.js";

export interface RetryPolicy {
  /** How often a call is tried. */
  attempts: number;
  /** How long one attempt may take. */
  attemptTimeoutMs: number;
  firstPauseMs: number;
  longestPauseMs: number;
  /** How long a stream may be without its server before its error is thrown. */
  patienceMs: number;
}

export const DEFAULT_RETRY: RetryPolicy = {
  attempts: 12,
  attemptTimeoutMs: 10_000,
  firstPauseMs: 100,
  longestPauseMs: 1_000,
  patienceMs: 60_000,
};

/** The pause behind the attempt of this number, the first of which is 1: what the server asks for, or exponential. */
export function pauseMs(policy: RetryPolicy, attempt: number, error: FetchboxError): number {
  if (error.retryAfterMs !== undefined) return error.retryAfterMs;
  const ceiling = Math.min(policy.firstPauseMs * 2 ** (attempt - 1), policy.longestPauseMs);
  return ceiling * (0.5 + Math.random() / 2);
}

/** Waits, or throws the signal's reason as soon as it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const aborted = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** An idempotency key that nobody has used. */
export function newKey(): string {
  // `crypto.randomUUID` is missing on pages without TLS.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
