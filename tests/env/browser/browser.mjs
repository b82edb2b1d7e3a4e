// How tests start a browser: without a window, and without anything that it would do of its own accord.

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

// Playwright gives every browser a fresh profile, and removes it.
export function launch({ path, env = {} }) {
  return chromium.launch({
    executablePath: path,
    headless: true,
    args: FLAGS,
    env: { ...process.env, ...env },
  });
}
