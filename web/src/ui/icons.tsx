/** Line icons and the logo. */

const PATHS = {
  servers: "M4 5h16v5H4zM4 14h16v5H4zM7.5 7.5h.01M7.5 16.5h.01",
  tools: "M14.5 6.5a4 4 0 0 0-5.2 5.2L4 17l3 3 5.3-5.3a4 4 0 0 0 5.2-5.2l-2.6 2.6-2.5-.5-.5-2.5z",
  code: "M8.5 8 4.5 12l4 4M15.5 8l4 4-4 4M13 5.5l-2 13",
  approvals: "M12 3.5 5 6v5.5c0 4.3 2.9 7.2 7 9 4.1-1.8 7-4.7 7-9V6zM9 12l2.2 2.2L15.2 10",
  runs: "M5 12a7 7 0 1 0 2.2-5.1M5 4.5v3.2h3.2M12 8.5V12l2.5 1.8",
  activity: "M4 12h3.5l2.5-6.5 4 13 2.5-6.5H20",
  keys: "M14.5 4.5a5 5 0 1 1-4.6 7L4.5 17v2.5H7V18h1.8v-1.8h1.8l1.5-1.6M15.6 8.4h.01",
  settings: "M5 7h8M17 7h2M5 17h2M11 17h8M15 5v4M9 15v4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg className="logo" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M8 25V14a8 8 0 0 1 16 0v11M16 25v-9" />
      <circle cx="16" cy="12.4" r="1.7" />
    </svg>
  );
}
