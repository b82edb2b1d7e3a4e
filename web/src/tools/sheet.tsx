/** One tool: its definition, and why a caller sees it or does not. */

import { useState } from "react";

import { all, ask } from "../api/client.ts";
import { useResource } from "../api/hooks.ts";
import { pretty } from "../api/json.ts";
import type { Explanation, Key, Tool } from "../api/types.ts";
import { Badge, Block, Failure, Loading } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { verdictOf } from "./verdict.ts";

export function ToolSheet({ alias, onClose }: { alias: string; onClose: () => void }) {
  const tool = useResource(alias, (signal) => find(alias, signal));
  return (
    <Sheet title={alias} says={tool.data?.title ?? undefined} onClose={onClose}>
      <Failure error={tool.error} />
      {tool.data && <Definition tool={tool.data} />}
      <Why alias={alias} />
    </Sheet>
  );
}

async function find(alias: string, signal: AbortSignal): Promise<Tool | null> {
  const tools = await all<Tool>(`/api/mcp/tools?search=${encodeURIComponent(alias)}`, "tools", signal);
  return tools.find((tool) => tool.alias === alias) ?? null;
}

function Definition({ tool }: { tool: Tool }) {
  const parts: [string, unknown][] = [
    ["Takes", tool.input_schema],
    ["Gives", tool.output_schema],
    ["Annotations", tool.annotations],
  ];
  return (
    <section className="section">
      {tool.description !== undefined && <p className="said">{tool.description}</p>}
      <p className="faint">
        <span className="mono">{tool.name}</span> of the server {tool.server}
      </p>
      {parts.map(
        ([name, value]) =>
          value !== undefined && (
            <div key={name} className="field">
              <h3>{name}</h3>
              <Block text={pretty(value)} label={name} />
            </div>
          ),
      )}
    </section>
  );
}

function Why({ alias }: { alias: string }) {
  const [key, setKey] = useState("");
  const keys = useResource("keys", (signal) => all<Key>("/api/keys", "keys", signal));
  const given = new URLSearchParams(key === "" ? { tool: alias } : { tool: alias, key });
  const why = useResource(given.toString(), (signal) =>
    ask<Explanation>(`/api/mcp/tools/explain?${given.toString()}`, { signal }),
  );
  return (
    <section className="section" aria-label="Why">
      <div className="row apart">
        <h2>Why</h2>
        <label className="row">
          <span className="soft">for</span>
          <select className="narrow" value={key} onChange={(event) => setKey(event.target.value)}>
            <option value="">a caller without a key</option>
            {(keys.data ?? []).map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Failure error={why.error} />
      {why.data === null && why.error === null && <Loading />}
      {why.data !== null && <Steps why={why.data} />}
    </section>
  );
}

function Steps({ why }: { why: Explanation }) {
  const verdict = why.verdict === null ? null : verdictOf(why.verdict);
  return (
    <>
      <p>
        {why.visible && verdict !== null ? (
          <>
            <Badge tone={verdict.tone}>{why.verdict}</Badge> It is visible and {verdict.says}.
          </>
        ) : (
          <>
            <Badge tone="bad">hidden</Badge> It does not exist for this caller
            {why.hidden_by !== null && (
              <>
                , because of <code>{why.hidden_by}</code>
              </>
            )}
            .
          </>
        )}
      </p>
      <ol className="steps">
        {why.steps.map((step, index) => (
          <li key={index} className={step.passes ? "passes" : "stops"}>
            <span aria-label={step.passes ? "passes" : "stops"}>{step.passes ? "✓" : "✕"}</span>
            <span>
              <code>{step.key}</code> {step.says}
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}
