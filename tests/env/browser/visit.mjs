// Runs one scene on the page and prints its results as JSON:
//
//   node visit.mjs SCENE URL '{"…": …}'
//
// Steps wait for conditions, never for a fixed time. A scene also fails if the browser console shows an
// error or the page violates its content security policy.

import { readFileSync } from "node:fs";

import { launch } from "./browser.mjs";
import * as scenes from "./scenes.mjs";

const [name, url, input] = process.argv.slice(2);
const browserConfig = JSON.parse(readFileSync(new URL("node_modules/.browser.json", import.meta.url), "utf8"));
const errors = [];

function watch(page) {
  page.on("pageerror", (error) => errors.push(`page error: ${error.message}`));
  page.on("console", (message) => {
    // Rejected requests are expected: scenes send wrong keys and names on purpose. So is 503 while the
    // gateway cannot record.
    const refused = /^Failed to load resource: .* status of (4\d\d|503) /.test(message.text());
    if (["error", "warning"].includes(message.type()) && !refused) {
      errors.push(`console: ${message.text()}`);
    }
  });
}

const browser = await launch(browserConfig);
const open = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  await context.exposeFunction("reportViolation", (text) => errors.push(`policy: ${text}`));
  await context.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) =>
      window.reportViolation(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  context.on("page", watch);
  context.setDefaultTimeout(120_000);
  return context.newPage();
};

let results = {};
try {
  results = await scenes[name]({ open, url, ...JSON.parse(input ?? "{}") });
} catch (error) {
  errors.push(`${error.stack ?? error}`);
} finally {
  await browser.close();
}
console.log(JSON.stringify({ results: results ?? {}, errors }));
