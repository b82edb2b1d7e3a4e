// User interactions with the web page.

import { strict as assert } from "node:assert";
import { mkdir } from "node:fs/promises";

/** Signs in by form and by link, with a wrong key, and with a remembered key. */
export async function signIn({ open, url, key }) {
  const page = await open();
  await page.goto(url);
  await page.getByLabel("Admin key").fill("not-the-key");
  await page.getByRole("button", { name: "Sign in" }).click();
  const refusal = await page.getByRole("alert").textContent();
  await page.getByLabel("Admin key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Servers" }).waitFor();
  await page.reload();
  await page.getByRole("heading", { name: "Servers" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Admin key").waitFor();

  const linked = await open();
  await linked.goto(`${url}/#key=${key}`);
  await linked.getByText("No servers yet").waitFor();
  const address = linked.url();
  const kept = await linked.evaluate(() => [localStorage.length, sessionStorage.length]);
  // The same in a tab that already shows the page.
  await linked.getByRole("button", { name: "Sign out" }).click();
  await linked.getByLabel("Admin key").waitFor();
  await linked.evaluate((key) => (location.hash = `key=${key}`), key);
  await linked.getByText("No servers yet").waitFor();
  assert.equal(linked.url(), address);

  await page.getByLabel("Admin key").fill(key);
  await page.getByLabel("Remember on this device").check();
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("No servers yet").waitFor();
  const again = await page.context().newPage();
  // A wrong key in a link does not discard the remembered one.
  await again.goto(`${url}/#key=wrong`);
  await again.getByText("No servers yet").waitFor();
  return { refusal, address, kept };
}

/** Tests and adds a server, enables code mode and auto-execution, and runs a script with it. */
export async function addServer({ open, url, command }) {
  const page = await open();
  await page.goto(url);
  await page.getByRole("button", { name: "Add server" }).first().click();
  const form = page.getByRole("dialog", { name: "Add server" });
  await form.getByLabel("Name").fill("not a name");
  await form.getByLabel("Command").fill(command);
  await form.getByRole("button", { name: "Add server" }).click();
  const error = await form.getByRole("alert").textContent();
  await form.getByLabel("Name").fill("zoo");
  await form.getByRole("button", { name: "Test" }).click();
  const tried = await form.getByText("Connected (protocol").textContent();
  await form.getByRole("button", { name: "Add server" }).click();

  const sheet = page.getByRole("dialog", { name: "zoo" });
  await sheet.getByText("Healthy").waitFor();
  const processes = await sheet.getByText("of memory").textContent();
  await sheet.getByRole("switch", { name: "Code Mode Client" }).click();
  await sheet.getByRole("switch", { name: "Automatically execute tool add" }).click();
  await sheet.getByRole("switch", { name: "Enable fail" }).click();
  await sheet.getByLabel("Approval by").selectOption("User of the client");
  await sheet.getByText("Tools the server adds later stay disabled").waitFor();
  await sheet.getByRole("button", { name: "Save Changes" }).click();
  await sheet.getByText("Saved", { exact: true }).waitFor();

  await page.reload();
  const states = {};
  for (const name of ["Code Mode Client", "Automatically execute tool add", "Enable add", "Enable fail"]) {
    const shown = sheet.getByRole("switch", { name, exact: true });
    states[name] = await shown.getAttribute("aria-checked");
  }
  const approvers = sheet.getByLabel("Approval by").locator("option:checked");
  states["Approval by"] = await approvers.textContent();
  await sheet.getByRole("button", { name: "Close" }).click();
  await page.getByRole("row", { name: /zoo.*Healthy.*code mode/ }).waitFor();

  await page.getByRole("link", { name: "Code" }).click();
  await page.getByText("def add(a: int, b: int)").waitFor();
  await page.getByLabel("Script").fill('print("hello")\nresult = zoo.add(a=20, b=22)');
  await page.getByRole("button", { name: "Run" }).click();
  const outcome = page.getByRole("region", { name: "Outcome" });
  const result = await outcome.getByLabel("Result").textContent();
  const printed = await outcome.getByLabel("Printed output").textContent();
  await outcome.getByRole("listitem").filter({ hasText: "zoo.add" }).getByText("ok").waitFor();
  await page.getByLabel("Script").fill("x = 1\nresult = zoo.nothing()");
  await page.getByRole("button", { name: "Run" }).click();
  const failure = await outcome.getByRole("alert").textContent();
  const line = await page.locator(".gutter .error-line").textContent();
  return { error, tried, processes, states, result: JSON.parse(result), printed, failure, line };
}

/** Shows why a server is unavailable, changes and deletes servers, imports one, and changes settings. */
export async function changeServer({ open, url }) {
  const page = await open({ viewport: { width: 390, height: 844 } });
  await page.goto(url);
  await page.getByText("`no-such-program` not found").waitFor();
  await page.getByRole("button", { name: "broken" }).click();
  const sheet = page.getByRole("dialog", { name: "broken" });
  const secret = await sheet.getByLabel("Environment").inputValue();
  await sheet.getByLabel("Arguments").fill("--one\n--two");
  await sheet.getByRole("button", { name: "Save Changes" }).click();
  await sheet.getByText("Saved", { exact: true }).waitFor();
  await sheet.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "gone" }).click();
  await page.getByRole("dialog", { name: "gone" }).getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Delete server" }).click();
  await page.getByRole("button", { name: "gone" }).waitFor({ state: "detached" });

  await page.getByRole("button", { name: "Import" }).click();
  const file = { mcpServers: { imported: { command: "no-such-import" }, broken: { command: "other" } } };
  await page.getByLabel("Or paste its contents").fill(JSON.stringify(file));
  const dialog = page.getByRole("dialog", { name: "Import servers" });
  await dialog.getByRole("button", { name: "Import", exact: true }).click();
  const imported = await dialog.getByRole("listitem").first().textContent();
  await dialog.getByText("exists").waitFor();
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await page.getByRole("button", { name: "imported" }).click();
  const added = page.getByRole("dialog", { name: "imported" });
  await added.getByRole("button", { name: "Reconnect" }).click();
  await added.getByText("`no-such-import` not found").waitFor();
  await added.getByRole("button", { name: "Close" }).click();

  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByLabel("Agent depth").fill("99");
  await page.getByRole("button", { name: "Save Changes" }).click();
  const refusal = await page.getByRole("alert").textContent();
  await page.getByLabel("Agent depth").fill("15");
  await page.getByRole("radio", { name: /^Tool/ }).check();
  await page.getByRole("button", { name: "Save Changes" }).click();
  await page.getByText("Saved", { exact: true }).waitFor();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  return { secret, imported, refusal, wide };
}

/** Creates a key, explains a tool for it, checks that hidden tools are not in its files, deletes it, and makes keys optional. */
export async function manageKeys({ open, url }) {
  const page = await open();
  await page.goto(`${url}/#/keys`);
  await page.getByRole("button", { name: "Add key" }).click();
  const form = page.getByRole("dialog", { name: "Add key" });
  // The form has the focus.
  await form.locator("input:focus").waitFor();
  await page.keyboard.type("ci");
  await form.getByLabel("Tools", { exact: true }).fill("zoo.echo");
  await form.getByLabel("Provider tools").selectOption("Allowed");
  await form.getByLabel("Approval by").selectOption("Administrator");
  await page.keyboard.press("Escape");
  await page
    .getByRole("dialog", { name: "Discard changes?" })
    .getByRole("button", { name: "Cancel" })
    .click();
  await form.getByRole("button", { name: "Add key" }).click();
  const key = await page.locator("code.key").textContent();
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("row", { name: /ci.*Active.*zoo\.echo.*tools: allowed.*by: admin/ }).waitFor();

  await page.getByRole("link", { name: "Tools" }).click();
  await page.getByLabel("Search names and descriptions").fill("adds two");
  await page.getByRole("button", { name: "zoo_add" }).click();
  const sheet = page.getByRole("dialog", { name: "zoo_add" });
  await sheet.getByText("Visible to this caller").waitFor();
  await sheet.getByRole("combobox").selectOption("ci");
  const why = await sheet.getByText("Hidden from this caller").textContent();
  await sheet.getByRole("button", { name: "Close" }).click();

  await page.getByRole("link", { name: "Code" }).click();
  await page.getByText("def add(").waitFor();
  await page.getByRole("combobox").selectOption("ci");
  // The file for all callers, which also has this function, is shown until that for the key arrives.
  const file = page.getByLabel("servers/zoo.pyi").filter({ hasNotText: "def add(" });
  await file.getByText("def echo(").waitFor();
  const own = await file.textContent();

  // Looking at files leaves no record; a call does.
  await page.evaluate(async (key) => {
    const call = { id: "c1", function: { name: "readToolFile", arguments: '{"fileName":"servers/zoo.pyi"}' } };
    const headers = { authorization: `Bearer ${key}` };
    await fetch("/v1/mcp/tool/execute", { method: "POST", headers, body: JSON.stringify(call) });
  }, key);
  await page.getByRole("link", { name: "Activity" }).click();
  await page.getByRole("combobox", { name: "Outcome" }).selectOption("ok");
  // Fails if there are several. A count could be taken while the list is replaced by the filtered one.
  await page.getByRole("row", { name: /toolgate\.readToolFile.*ci/ }).click();
  const record = await page.getByRole("dialog").getByLabel("Arguments").textContent();
  await page.getByRole("button", { name: "Close" }).click();

  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("button", { name: "Disable" }).click();
  await page.getByText("Disabled").waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Delete key" }).click();
  await page.getByText("No keys", { exact: true }).waitFor();
  const requirement = page.getByRole("switch", { name: "Require a key" });
  await page.getByText("calls are rejected. Add a key").waitFor();
  const stayed = await requirement.getAttribute("aria-checked");
  await requirement.click();
  await page.getByRole("button", { name: "Make keys optional" }).click();
  await page.getByText("do not need a key").waitFor();
  const optional = await requirement.getAttribute("aria-checked");
  return { key, why, own, record: JSON.parse(record), required: [stayed, optional] };
}

/** Inspects a finished run and cancels a running one. */
export async function watchRuns({ open, url, model }) {
  const page = await open();
  await page.goto(`${url}/#/runs`);
  await page.getByRole("row", { name: /done/ }).click();
  const sheet = page.getByRole("dialog", { name: model });
  await sheet.getByText("Run done").waitFor();
  const steps = await sheet.getByRole("listitem").locator("strong").allTextContents();
  await sheet.getByRole("button", { name: "Close" }).click();
  await page.getByRole("row", { name: /running/ }).click();
  await sheet.getByRole("button", { name: "Cancel run" }).click();
  await sheet.getByText("cancelled").first().waitFor();
  await sheet.getByRole("button", { name: "Close" }).click();
  await page.getByRole("row", { name: /cancelled/ }).waitFor();
  return { steps };
}

/** Approves a waiting script with edited arguments, which then continues, and denies another call. */
export async function approve({ open, url }) {
  const page = await open();
  await page.goto(`${url}/#/code`);
  await page.getByLabel("Script").fill('first = zoo.add(a=1, b=1)\nresult = zoo.echo(text="please")');
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByRole("link", { name: "Open approval" }).click();
  const card = page.getByRole("article", { name: "zoo_echo, pending" });
  const asked = await card.getByLabel("Arguments").textContent();
  await card.getByRole("button", { name: "Edit arguments" }).click();
  await card.getByLabel("Edited arguments").fill('{"text": "edited", "n": 18446744073709551617}');
  await card.getByRole("button", { name: "Approve once" }).click();
  await page.getByRole("article", { name: "zoo_echo, approved" }).waitFor();
  await page.getByRole("link", { name: "Code" }).click();
  await page.getByRole("button", { name: "Run" }).click();
  const result = await page.getByLabel("Result").textContent();

  await page.getByRole("link", { name: "Approvals" }).click();
  await page.getByText("No pending approvals").waitFor();
  // The approval appears without a reload.
  const call = { id: "c1", type: "function", function: { name: "zoo_echo", arguments: '{"text":"again"}' } };
  const answer = await fetch(`${url}/v1/mcp/tool/execute`, { method: "POST", body: JSON.stringify(call) });
  assert.equal(answer.status, 200);
  await card.getByLabel("Reason for denying").fill("not today");
  await card.getByRole("button", { name: "Deny" }).click();
  await page.getByText("No pending approvals").waitFor();
  return { asked: JSON.parse(asked), result };
}

/** Sees that the gateway cannot record, until the folder of its second sink exists, and looks at a change. */
export async function watchRecording({ open, url, folder }) {
  const page = await open();
  await page.goto(`${url}/#/keys`);
  await page.getByText("No keys", { exact: true }).waitFor();
  const call = { id: "c1", type: "function", function: { name: "zoo_add", arguments: '{"a":1,"b":1}' } };
  const execute = () => fetch(`${url}/v1/mcp/tool/execute`, { method: "POST", body: JSON.stringify(call) });
  const refused = (await execute()).status;
  const banner = page.getByRole("alert").filter({ hasText: "cannot record" });
  const problem = await banner.textContent();
  await page.getByRole("link", { name: "Activity" }).click();
  const trail = page.getByLabel("Audit trail");
  await trail.getByText("Second sink:").waitFor();
  await page.getByRole("link", { name: "Servers" }).click();
  await page.getByRole("button", { name: "zoo" }).click();
  const sheet = page.getByRole("dialog", { name: "zoo" });
  await sheet.getByRole("alert").filter({ hasText: "cannot record" }).waitFor();
  await sheet.getByRole("button", { name: "Close" }).click();
  // While it closes, there are two banners.
  await sheet.waitFor({ state: "detached" });

  await mkdir(folder);
  await banner.waitFor({ state: "detached" });
  const accepted = (await execute()).status;

  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByLabel("Agent depth").fill("15");
  await page.getByRole("button", { name: "Save Changes" }).click();
  await page.getByText("Saved", { exact: true }).waitFor();
  await page.getByRole("link", { name: "Activity" }).click();
  await page.getByRole("row", { name: /zoo\.add.*unrecorded/ }).waitFor();
  await page.getByRole("combobox", { name: "Kind" }).selectOption("Changes");
  await page.getByRole("row", { name: /settings\.change/ }).click();
  const change = page.getByRole("dialog").getByRole("row", { name: /max_agent_depth/ });
  await change.waitFor();
  const depths = await change.getByRole("cell").allTextContents();
  return { refused, problem, accepted, depths };
}

/** Reviews the definition of a tool that its server changed, and trusts it. */
export async function trustDefinition({ open, url }) {
  const page = await open();
  await page.goto(`${url}/#/tools`);
  await page.getByText("the definition of `t` changed since it was trusted").waitFor();
  const review = page.getByRole("region", { name: "Definitions to review" });
  const reason = await review.getByRole("row", { name: /a_t/ }).textContent();
  await review.getByRole("button", { name: "a_t" }).click();
  const sheet = page.getByRole("dialog", { name: "a_t" });
  const change = await sheet.getByRole("row", { name: /description/ }).textContent();
  await sheet.getByRole("button", { name: "Trust this definition" }).click();
  await sheet.getByText("Visible to this caller").waitFor();
  await sheet.getByRole("button", { name: "Close" }).click();
  await review.waitFor({ state: "detached" });
  await page.getByRole("row", { name: /a_t/ }).waitFor();
  return { reason, change };
}

/** Checks that text from a server is never rendered as HTML. */
export async function readHostile({ open, url, markup }) {
  const page = await open();
  await page.goto(`${url}/#/servers/hostile`);
  const sheet = page.getByRole("dialog", { name: "hostile" });
  // The server's name, its instructions, the tool's description and its standard error.
  await sheet.getByText(markup).nth(3).waitFor();
  await page.goto(`${url}/#/code`);
  await page.getByLabel("Script").fill("result = hostile.speak()");
  await page.getByRole("button", { name: "Run" }).click();
  const result = await page.getByLabel("Result").textContent();
  await page.getByRole("listitem").filter({ hasText: "hostile.speak" }).waitFor();
  const made = await page.evaluate(() => [
    window.broken ?? null,
    document.querySelectorAll("img, main script").length,
  ]);
  return { result, made };
}
