/** A state: its word, and a colour that only repeats the word. */
const TONES: Record<string, string> = {
  ok: "good",
  completed: "good",
  done: "good",
  stored: "good",
  alive: "good",
  closed: "good",
  running: "busy",
  in_progress: "busy",
  waiting: "wait",
  queued: "wait",
  half_open: "wait",
  degraded: "wait",
  partial: "wait",
  retry: "wait",
  warn: "wait",
  paused: "wait",
  draining: "wait",
  failed: "bad",
  gone: "bad",
  error: "bad",
  open: "bad",
  unhealthy: "bad",
};

export function tone(state: string): string {
  return TONES[state] ?? "calm";
}

export function Badge({ state }: { state: string }) {
  return <span class={`badge ${tone(state)}`}>{state.replace("_", " ")}</span>;
}
