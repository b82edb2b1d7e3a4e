// Plays one scene on the page and prints what was seen as JSON:
//
//   node visit.mjs SCENE URL '{"…": …}'
//
// Steps wait for what they need to see, never for time. A scene fails too if the browser's console shows an
// error, or something breaks the page's security policy.

import { readFileSync } from "node:fs";

import { launch } from "./browser.mjs";
import * as scenes from "./scenes.mjs";

const [name, url, given] = process.argv.slice(2);
const found = JSON.parse(readFileSync(new URL("node_modules/.browser.json", import.meta.url), "utf8"));
const wrong = [];

function watch(page) {
  page.on("pageerror", (error) => wrong.push(`page error: ${error.message}`));
  page.on("console", (message) => {
    // The browser reports requests that are refused, which is what a wrong key or name is there for.
    const refused = /^Failed to load resource: .* status of 4\d\d /.test(message.text());
    if (["error", "warning"].includes(message.type()) && !refused) {
      wrong.push(`console: ${message.text()}`);
    }
  });
}

const browser = await launch(found);
const open = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  await context.exposeFunction("reportViolation", (text) => wrong.push(`policy: ${text}`));
  await context.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) =>
      window.reportViolation(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  context.on("page", watch);
  context.setDefaultTimeout(30_000);
  return context.newPage();
};

let seen = {};
try {
  seen = await scenes[name]({ open, url, ...JSON.parse(given ?? "{}") });
} catch (error) {
  wrong.push(`${error.stack ?? error}`);
} finally {
  await browser.close();
}
console.log(JSON.stringify({ seen: seen ?? {}, wrong }));
