// Finds a browser that runs here, and writes down how: one that is installed already, or Chromium as the npm
// package `@sparticuz/chromium` carries it, if need be with the libraries that it carries too.

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";

import { launch } from "./browser.mjs";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const place = join(here, "node_modules", ".chromium");

function installed() {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = names.flatMap((name) => folders.map((folder) => join(folder, name)));
  return paths.filter((path) => existsSync(path)).map((path) => ({ path }));
}

async function carried() {
  // The package unpacks itself into the folder for temporary files.
  mkdirSync(place, { recursive: true });
  process.env.TMPDIR = place;
  const { default: chromium } = await import("@sparticuz/chromium");
  const path = await chromium.executablePath();
  const own = join(here, "node_modules", "@sparticuz", "chromium");
  const { inflate } = await import(join(own, "build", "esm", "lambdafs.js"));
  const libraries = await inflate(join(own, "bin", "al2023.tar.br"));
  const env = { LD_LIBRARY_PATH: join(libraries, "lib"), FONTCONFIG_PATH: join(place, "fonts") };
  return [{ path }, { path, env }];
}

async function runs(found) {
  try {
    const browser = await launch(found);
    const page = await browser.newPage();
    await page.setContent("<p>ready</p>");
    const text = await page.textContent("p");
    await browser.close();
    return text === "ready";
  } catch (error) {
    console.log(`${found.path} does not run: ${String(error).split("\n")[0]}`);
    return false;
  }
}

for (const find of [installed, carried]) {
  const candidates = await Promise.resolve()
    .then(find)
    .catch((error) => (console.log(String(error)), []));
  for (const found of candidates) {
    if (await runs(found)) {
      writeFileSync(join(here, "node_modules", ".browser.json"), JSON.stringify(found));
      console.log(`a browser for the tests of the page: ${found.path}`);
      process.exit(0);
    }
  }
}
process.exit(1);
