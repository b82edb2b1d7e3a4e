/** Formats times, durations, numbers and amounts for display. */

const UNITS: readonly [number, Intl.RelativeTimeFormatUnit][] = [
  [86_400, "day"],
  [3600, "hour"],
  [60, "minute"],
  [1, "second"],
];

const relativeTimeFormat = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const numberFormat = new Intl.NumberFormat("en");

/** `3 minutes ago`, `in 12 seconds`. */
export function formatRelativeTime(time: string, now = Date.now()): string {
  const seconds = (Date.parse(time) - now) / 1000;
  if (Number.isNaN(seconds)) {
    return time;
  }
  const [size, unit] = UNITS.find(([size]) => Math.abs(seconds) >= size) ?? [1, "second" as const];
  const count = Math.trunc(seconds / size);
  return count === 0 ? "just now" : relativeTimeFormat.format(count, unit);
}

export function formatDateTime(time: string): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : date.toLocaleString();
}

/** `13 ms`, `5.0 s`; a dash for `null`. */
export function formatDuration(milliseconds: number | null): string {
  if (milliseconds === null) {
    return "–";
  }
  if (milliseconds < 1) {
    return "< 1 ms";
  }
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

export function formatNumber(number: number): string {
  return numberFormat.format(number);
}

const BYTE_UNITS = ["KiB", "MiB", "GiB", "TiB"] as const;

/** `512 bytes`, `1.5 MiB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) {
    return pluralize(bytes, "byte");
  }
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), BYTE_UNITS.length);
  const amount = bytes / 1024 ** power;
  return `${amount < 10 ? Number(amount.toFixed(1)) : Math.round(amount)} ${BYTE_UNITS[power - 1]}`;
}

/** `1 tool`, `2 tools`. */
export function pluralize(number: number, noun: string): string {
  return `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function formatUsd(amount: number): string {
  return `$${amount.toFixed(amount > 0 && amount < 0.01 ? 4 : 2)}`;
}
