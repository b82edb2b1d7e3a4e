// The command line of the Inspector under the names of the SDK. It is called as a module, so that the interpreter
// starts once; each call parses a command line and opens a connection of its own.

import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const CLI = "./node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js";

// Features for which the command line has no method or option.
export const INSPECTOR_LACKS = ["progress", "cancel", "logging", "completion", "subscribe", "list_changes"];

export async function connectInspector(address) {
  const { runCli } = await import(CLI);
  const folder = await mkdtemp(join(process.env.HOME ?? tmpdir(), "inspector-"));
  let count = 0;

  async function run(method, ...options) {
    count += 1;
    const file = join(folder, `${count}.json`);
    const target = typeof address === "string" ? [address, "--transport", "http"] : address;
    const common = ["--connect-timeout", "0", "--protocol-era", "auto", "--quiet", "--output", file];
    await runCli(["node", "inspector-cli", ...target, "--method", method, ...options, ...common]);
    return JSON.parse(await readFile(file, "utf8"));
  }

  const pairs = (values) => Object.entries(values).map(([name, value]) => `${name}=${value}`);
  return {
    use: (name, args = {}) =>
      run("tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(args)),
    listTools: () => run("tools/list"),
    listResources: () => run("resources/list"),
    listResourceTemplates: () => run("resources/templates/list"),
    listPrompts: () => run("prompts/list"),
    readResource: ({ uri }) => run("resources/read", "--uri", uri),
    getPrompt: ({ name, arguments: args }) =>
      run("prompts/get", "--prompt-name", name, "--prompt-args", ...pairs(args)),
    close: async () => {},
  };
}
