/** Times in the reader's zone, UTC on hover; durations in words. */
const LONG = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const SHORT = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Milliseconds since 1970 of what the API has: ISO text, or milliseconds as text. */
export function millis(time: string | undefined): number {
  if (!time) return NaN;
  return /^\d+$/.test(time) ? Number(time) : Date.parse(time);
}

export function Time({ at, short = false }: { at: string | undefined; short?: boolean }) {
  const ms = millis(at);
  if (!Number.isFinite(ms) || ms === 0) return <span class="muted">–</span>;
  const iso = new Date(ms).toISOString();
  const isToday = new Date(ms).toDateString() === new Date().toDateString();
  return (
    <time dateTime={iso} title={`${iso.replace("T", " ").replace("Z", "")} UTC`}>
      {(short || isToday ? SHORT : LONG).format(ms)}
    </time>
  );
}

export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function age(seconds: number | string | undefined): string {
  const value = Number(seconds ?? 0);
  return value > 0 ? duration(value * 1000) : "–";
}
