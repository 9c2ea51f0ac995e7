/** Places for the steps of a run: a column for each length of the longest way to them, in the order of the definition. */
import type { Step } from "../api/types";

export interface Placed {
  step: Step;
  column: number;
  row: number;
}

export interface Graph {
  placed: Placed[];
  edges: [Placed, Placed][];
  columns: number;
  rows: number;
}

export function graphOf(steps: Step[]): Graph {
  const byKey = new Map(steps.map((step) => [step.stepKey, step]));
  const depths = new Map<string, number>();
  const depth = (step: Step, above: ReadonlySet<string>): number => {
    const known = depths.get(step.stepKey);
    if (known !== undefined) return known;
    const needs = (step.needs ?? []).map((key) => byKey.get(key)).filter((one) => one !== undefined);
    const seen = new Set([...above, step.stepKey]);
    const found = Math.max(-1, ...needs.filter((one) => !seen.has(one.stepKey)).map((one) => depth(one, seen))) + 1;
    depths.set(step.stepKey, found);
    return found;
  };
  const used: number[] = [];
  const placed = steps.map((step) => {
    const column = depth(step, new Set());
    const row = used[column] ?? 0;
    used[column] = row + 1;
    return { step, column, row };
  });
  const places = new Map(placed.map((one) => [one.step.stepKey, one]));
  const edges = placed.flatMap((to) =>
    (to.step.needs ?? []).flatMap((key) => {
      const from = places.get(key);
      return from ? [[from, to] as [Placed, Placed]] : [];
    }),
  );
  return { placed, edges, columns: used.length, rows: Math.max(0, ...used) };
}
