/** The steps of a run as a graph. It scrolls in its own frame; the table below says the same in words. */
import type { Step } from "../api/types";
import { tone } from "../parts/badge";
import { type Graph, graphOf, type Placed } from "./graph";

const WIDTH = 150;
const HEIGHT = 46;
const GAP_X = 46;
const GAP_Y = 18;
const EDGE = 8;

export function FlowGraph({ steps, link }: { steps: Step[]; link: (stepKey: string) => string }) {
  const graph = graphOf(steps);
  return (
    <div class="graph" tabIndex={0} role="region" aria-label="Steps as a graph">
      <svg width={extent(graph.columns, WIDTH, GAP_X)} height={extent(graph.rows, HEIGHT, GAP_Y)} role="group">
        <Edges graph={graph} />
        {graph.placed.map((one) => (
          <Node key={one.step.stepKey} placed={one} link={link} />
        ))}
      </svg>
    </div>
  );
}

function extent(count: number, size: number, gap: number): number {
  return Math.max(1, count) * (size + gap) - gap + 2 * EDGE;
}

function left({ column }: Placed): number {
  return EDGE + column * (WIDTH + GAP_X);
}

function top({ row }: Placed): number {
  return EDGE + row * (HEIGHT + GAP_Y);
}

function Edges({ graph }: { graph: Graph }) {
  return (
    <g class="edges" aria-hidden="true">
      {graph.edges.map(([from, to]) => {
        const [x, y] = [left(from) + WIDTH, top(from) + HEIGHT / 2];
        const [toX, toY] = [left(to), top(to) + HEIGHT / 2];
        const middle = (x + toX) / 2;
        return <path key={`${from.step.stepKey} ${to.step.stepKey}`} d={`M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`} />;
      })}
    </g>
  );
}

function Node({ placed, link }: { placed: Placed; link: (stepKey: string) => string }) {
  const { step } = placed;
  const said = step.waiting ? `waits: ${step.waitingFor}` : step.status;
  const name = step.stepKey.length > 18 ? `${step.stepKey.slice(0, 17)}…` : step.stepKey;
  return (
    <a href={link(step.stepKey)} aria-label={`${step.stepKey}: ${said}`} class={`node ${tone(step.status)}`}>
      <rect x={left(placed)} y={top(placed)} width={WIDTH} height={HEIGHT} rx="6" />
      <text x={left(placed) + 10} y={top(placed) + 19} class="key">
        {name}
      </text>
      <text x={left(placed) + 10} y={top(placed) + 36}>
        {said}
      </text>
    </a>
  );
}
