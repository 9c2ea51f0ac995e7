/** A line of recent values, with its last and highest value in words. */
import { number } from "./number";

interface Props {
  name: string;
  values: number[];
  unit?: string;
  form?: (value: number) => string;
}

const WIDTH = 240;
const HEIGHT = 48;

export function Spark({ name, values, unit = "", form = number }: Props) {
  const last = values[values.length - 1] ?? 0;
  const most = Math.max(...values, 0);
  const said = `${form(last)}${unit}`;
  return (
    <figure class="spark">
      <figcaption>
        {name} <b>{said}</b>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${name}: ${said} now, ${form(most)}${unit} at most since this page was opened`}
      >
        <polyline points={points(values, most)} fill="none" vector-effect="non-scaling-stroke" />
      </svg>
    </figure>
  );
}

function points(values: number[], most: number): string {
  const step = WIDTH / Math.max(1, values.length - 1);
  const scale = (HEIGHT - 4) / (most || 1);
  return values.map((value, at) => `${(at * step).toFixed(1)},${(HEIGHT - 2 - value * scale).toFixed(1)}`).join(" ");
}
