/** Times, sizes and counts as people read them. */

const UNITS: readonly [number, Intl.RelativeTimeFormatUnit][] = [
  [86_400, "day"],
  [3600, "hour"],
  [60, "minute"],
  [1, "second"],
];

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const whole = new Intl.NumberFormat("en");

/** `3 minutes ago`, `in 12 seconds`. */
export function when(time: string, now = Date.now()): string {
  const seconds = (Date.parse(time) - now) / 1000;
  if (Number.isNaN(seconds)) {
    return time;
  }
  const [size, unit] = UNITS.find(([size]) => Math.abs(seconds) >= size) ?? [1, "second" as const];
  const count = Math.trunc(seconds / size);
  return count === 0 ? "just now" : relative.format(count, unit);
}

export function clock(time: string): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : date.toLocaleString();
}

export function ms(duration: number | null): string {
  if (duration === null) {
    return "–";
  }
  if (duration < 1) {
    return "< 1 ms";
  }
  return duration < 1000 ? `${Math.round(duration)} ms` : `${(duration / 1000).toFixed(1)} s`;
}

export function count(number: number): string {
  return whole.format(number);
}

/** `1 tool`, `2 tools`. */
export function many(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function usd(amount: number): string {
  return `$${amount.toFixed(amount > 0 && amount < 0.01 ? 4 : 2)}`;
}
