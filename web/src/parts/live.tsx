/** Whether a stream is live. */
import type { StreamState } from "../api/stream";

const WORDS: Record<StreamState, string> = {
  connecting: "connecting…",
  live: "live",
  paused: "paused while this tab is hidden",
  over: "complete",
  broken: "lost",
};

export function Live({ state }: { state: StreamState }) {
  return (
    <span class={`live is-${state}`} role="status">
      {WORDS[state]}
    </span>
  );
}
