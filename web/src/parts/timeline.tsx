/** Bars over a span of time, a row a thing. */
import { tone } from "./badge";
import { duration } from "./time";

export interface Bar {
  began: number;
  ended: number;
  state: string;
  said: string;
}

export interface Row {
  name: string;
  bars: Bar[];
  said: string;
}

export function Timeline({ label, rows, from, to }: { label: string; rows: Row[]; from: number; to: number }) {
  const span = Math.max(1, to - from);
  const percent = (ms: number): string => `${Math.min(100, Math.max(0, (ms / span) * 100)).toFixed(3)}%`;
  return (
    <figure class="timeline" aria-label={label}>
      <ul>
        {rows.map((row) => (
          <li key={row.name}>
            <span class="name" title={row.name}>
              {row.name || "the job"}
            </span>
            <svg aria-hidden="true">
              {row.bars.map((bar, at) => (
                <rect
                  key={at}
                  class={tone(bar.state)}
                  x={percent(bar.began - from)}
                  width={percent(Math.max(bar.ended - bar.began, span / 300))}
                  y="3"
                  height="12"
                  rx="2"
                >
                  <title>{bar.said}</title>
                </rect>
              ))}
            </svg>
            <span class="said">{row.said}</span>
          </li>
        ))}
      </ul>
      <figcaption>
        <span>0</span>
        <span>{duration(span)}</span>
      </figcaption>
    </figure>
  );
}
