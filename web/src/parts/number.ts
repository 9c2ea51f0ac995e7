/** Numbers as the reader writes them; the API has large ones as text. */
const FORM = new Intl.NumberFormat();
const UNITS = ["B", "KB", "MB", "GB", "TB"];

export function number(value: number | string | undefined): string {
  return FORM.format(Number(value ?? 0));
}

export function bytes(value: number | string | undefined): string {
  let size = Number(value ?? 0);
  let unit = 0;
  for (; size >= 1024 && unit < UNITS.length - 1; unit += 1) size /= 1024;
  return `${unit === 0 ? size : size.toFixed(1)} ${UNITS[unit]}`;
}

/** `1 job`, `7 jobs`. */
export function counted(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}
