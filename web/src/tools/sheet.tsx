/** One tool: its definition, and why a caller can or cannot see it. */

import { useState } from "react";

import { fetchAll, request } from "../api/client.ts";
import { useResource } from "../api/hooks.ts";
import { formatJson } from "../api/json.ts";
import type { ExplanationView as Explanation, KeyView as Key, ToolEntry as Tool } from "../api/schema.ts";
import { Badge, CodeBlock, ErrorNotice, Loading } from "../ui/components.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { DefinitionReview } from "./definitions.tsx";
import { describeVerdict } from "./verdict.ts";

interface Props {
  alias: string;
  /** Called when the tool's definition was trusted. */
  onTrusted: () => void;
  onClose: () => void;
}

export function ToolSheet({ alias, onTrusted, onClose }: Props) {
  // Trust in the definition changes who can see the tool.
  const [trusts, setTrusts] = useState(0);
  const tool = useResource(alias, (signal) => findTool(alias, signal));
  return (
    <Sheet title={alias} subtitle={tool.data?.title ?? undefined} onClose={onClose}>
      <ErrorNotice error={tool.error} />
      <DefinitionReview
        alias={alias}
        onTrusted={() => {
          setTrusts(trusts + 1);
          tool.reload();
          onTrusted();
        }}
      />
      {tool.data && <Definition tool={tool.data} />}
      <Access key={trusts} alias={alias} />
    </Sheet>
  );
}

async function findTool(alias: string, signal: AbortSignal): Promise<Tool | null> {
  const path = `/api/mcp/tools?search=${encodeURIComponent(alias)}`;
  const tools = await fetchAll<Tool>(path, "tools", signal);
  return tools.find((tool) => tool.alias === alias) ?? null;
}

function Definition({ tool }: { tool: Tool }) {
  const parts: [string, unknown][] = [
    ["Input schema", tool.input_schema],
    ["Output schema", tool.output_schema],
    ["Annotations", tool.annotations],
    ["Definition as sent, before its repair", tool.sent],
  ];
  return (
    <section className="section">
      {tool.description !== undefined && <p className="prewrap">{tool.description}</p>}
      <p className="faint">
        <span className="mono">{tool.name}</span> on server {tool.server}
      </p>
      {parts.map(
        ([name, value]) =>
          value !== undefined && (
            <div key={name} className="field">
              <h3>{name}</h3>
              <CodeBlock text={formatJson(value)} label={name} />
            </div>
          ),
      )}
    </section>
  );
}

/** Explains whether the selected caller can see and call the tool. */
function Access({ alias }: { alias: string }) {
  const [key, setKey] = useState("");
  const keys = useResource("keys", (signal) => fetchAll<Key>("/api/keys", "keys", signal));
  const params = new URLSearchParams(key === "" ? { tool: alias } : { tool: alias, key });
  const explanation = useResource(params.toString(), (signal) =>
    request<Explanation>(`/api/mcp/tools/explain?${params.toString()}`, { signal }),
  );
  return (
    <section className="section" aria-label="Access">
      <div className="row spread">
        <h2>Access</h2>
        <label className="row">
          <span className="soft">Caller</span>
          <select className="narrow" value={key} onChange={(event) => setKey(event.target.value)}>
            <option value="">No key</option>
            {(keys.data ?? []).map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <ErrorNotice error={explanation.error} />
      {explanation.data === null && explanation.error === null && <Loading />}
      {explanation.data !== null && <ExplanationSteps explanation={explanation.data} />}
    </section>
  );
}

function ExplanationSteps({ explanation }: { explanation: Explanation }) {
  const { visible, verdict, hidden_by, steps } = explanation;
  const display = verdict === null ? null : describeVerdict(verdict);
  return (
    <>
      <p>
        {visible && display !== null ? (
          <>
            <Badge tone={display.tone}>{verdict}</Badge> Visible to this caller. {display.description}.
          </>
        ) : (
          <>
            <Badge tone="bad">hidden</Badge> Hidden from this caller
            {hidden_by !== null && (
              <>
                {" "}
                by <code>{hidden_by}</code>
              </>
            )}
            .
          </>
        )}
      </p>
      <ol className="steps">
        {steps.map((step, index) => (
          <li key={index} className={step.passes ? "passed" : "failed"}>
            <span aria-label={step.passes ? "passed" : "failed"}>{step.passes ? "✓" : "✕"}</span>
            <span>
              <code>{step.key}</code> {step.says}
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}
