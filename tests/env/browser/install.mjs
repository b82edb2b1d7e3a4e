// Finds a working browser and records how to start it: an installed one, or Chromium from the npm package
// `@sparticuz/chromium`, if necessary with the libraries that the package bundles.

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";

import { launch } from "./browser.mjs";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const chromiumFolder = join(here, "node_modules", ".chromium");

function findInstalled() {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = names.flatMap((name) => folders.map((folder) => join(folder, name)));
  return paths.filter((path) => existsSync(path)).map((path) => ({ path }));
}

async function unpackBundled() {
  // The package unpacks itself into the temporary folder.
  mkdirSync(chromiumFolder, { recursive: true });
  process.env.TMPDIR = chromiumFolder;
  const { default: chromium } = await import("@sparticuz/chromium");
  const path = await chromium.executablePath();
  const packageFolder = join(here, "node_modules", "@sparticuz", "chromium");
  const { inflate } = await import(join(packageFolder, "build", "esm", "lambdafs.js"));
  const libraries = await inflate(join(packageFolder, "bin", "al2023.tar.br"));
  const env = { LD_LIBRARY_PATH: join(libraries, "lib"), FONTCONFIG_PATH: join(chromiumFolder, "fonts") };
  return [{ path }, { path, env }];
}

async function canRun(candidate) {
  try {
    const browser = await launch(candidate);
    const page = await browser.newPage();
    await page.setContent("<p>ready</p>");
    const text = await page.textContent("p");
    await browser.close();
    return text === "ready";
  } catch (error) {
    console.log(`${candidate.path} does not run: ${String(error).split("\n")[0]}`);
    return false;
  }
}

for (const find of [findInstalled, unpackBundled]) {
  const candidates = await Promise.resolve()
    .then(find)
    .catch((error) => (console.log(String(error)), []));
  for (const candidate of candidates) {
    if (await canRun(candidate)) {
      writeFileSync(join(here, "node_modules", ".browser.json"), JSON.stringify(candidate));
      console.log(`browser for the web page tests: ${candidate.path}`);
      process.exit(0);
    }
  }
}
process.exit(1);
