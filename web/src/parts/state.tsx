/** What stands in place of data: it loads, it failed, there is none. Each says what to do. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api/errors";
import type { Polled } from "../api/poll";

const SLOW = 3000;

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="failure" role="alert">
      <p>
        <b>{error.message}</b> {error.status > 0 && <span class="muted">({`${error.status} ${error.reason}`.trim()})</span>}
      </p>
      <p>{error.advice}</p>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Shows data, and above it why it may be old. */
export function Loaded<T>({ polled, children }: { polled: Polled<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, isLoading } = polled;
  return (
    <>
      {error && <Failure error={error} retry={polled.reload} />}
      {data === undefined && isLoading && !error && <Loading stop={polled.stop} />}
      {data === undefined && !isLoading && !error && (
        <p>
          Stopped.{" "}
          <button type="button" onClick={polled.reload}>
            Load
          </button>
        </p>
      )}
      {data !== undefined && children(data)}
    </>
  );
}

function Loading({ stop }: { stop: () => void }) {
  const [isSlow, setSlow] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setSlow(true), SLOW);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <p class="muted" role="status">
      {isSlow ? "This takes longer than usual… " : "Loading…"}
      {isSlow && (
        <button type="button" onClick={stop}>
          Stop
        </button>
      )}
    </p>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
