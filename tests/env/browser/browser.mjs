// Starts a browser for tests: headless and without background activity.

import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-dev-shm-usage",
];

// Playwright creates a fresh profile for every browser and removes it.
export function launch({ path, env = {} }) {
  return chromium.launch({
    executablePath: path,
    headless: true,
    args: FLAGS,
    env: { ...process.env, ...env },
  });
}
