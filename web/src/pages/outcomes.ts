/** How many have which outcome. */
export function tally(outcomes: { outcome: string }[] | undefined): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { outcome } of outcomes ?? []) found[outcome] = (found[outcome] ?? 0) + 1;
  return found;
}
