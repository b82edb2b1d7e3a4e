/** Available Tools: which of them are enabled, and which are automatically executed. */

import { useState } from "react";

import { fetchAll } from "../api/client.ts";
import { useResource } from "../api/hooks.ts";
import type { ClientEntry as Client, ToolEntry as Tool, ToolLine } from "../api/schema.ts";
import { pluralize } from "../ui/format.ts";
import { Badge, Notice, SearchInput, Switch } from "../ui/components.tsx";
import type { Draft } from "./draft.ts";
import {
  ALL,
  findMissing,
  includesTool,
  isAll,
  isAutoExecuted,
  NONE,
  setEnabled,
  setTool,
  type ToolLists,
} from "./tool-list.ts";

/** Maximum number of rows shown. */
const MAX_ROWS = 200;

interface Props {
  client: Client;
  draft: Draft;
  onEdit: (change: Partial<Draft>) => void;
}

export function AvailableTools({ client, draft, onEdit }: Props) {
  const [search, setSearch] = useState("");
  const name = client.config.name;
  const offered = client.tools.map((tool) => tool.name);
  const definitions = useResource(`${name} ${offered.length}`, (signal) =>
    fetchAll<Tool>(`/api/mcp/tools?server=${encodeURIComponent(name)}`, "tools", signal),
  );
  const descriptions = new Map((definitions.data ?? []).map((tool) => [tool.name, tool.description ?? ""]));
  const term = search.toLowerCase();
  const matches = client.tools.filter((tool) =>
    `${tool.name} ${descriptions.get(tool.name) ?? ""}`.toLowerCase().includes(term),
  );
  const set = (tools: ToolLists) => onEdit({ tools });
  return (
    <section className="section" aria-label="Available Tools">
      <div className="row spread">
        <h2>Available Tools</h2>
        <span className="faint">{pluralize(offered.length, "tool")}</span>
      </div>
      {offered.length === 0 ? (
        <p className="soft">The server offers no tools at the moment. Its tool settings are kept.</p>
      ) : (
        <>
          <SearchInput label="Search tools" value={search} onChange={setSearch} />
          <ToolListControls tools={draft.tools} onChange={set} offered={offered} />
          <div>
            <div className="tool-row header" aria-hidden="true">
              <span>Tool</span>
              <span>Enabled</span>
              <span>Automatically execute tool</span>
            </div>
            {matches.slice(0, MAX_ROWS).map((tool) => (
              <ToolRow
                key={tool.name}
                tool={tool}
                description={descriptions.get(tool.name) ?? ""}
                lists={draft.tools}
                offered={offered}
                onChange={set}
              />
            ))}
            {matches.length > MAX_ROWS && (
              <p className="soft">{`${pluralize(matches.length - MAX_ROWS, "more tool")} not shown. Search to find them.`}</p>
            )}
            {matches.length === 0 && <p className="soft">No tools match “{search}”.</p>}
          </div>
        </>
      )}
    </section>
  );
}

interface ListProps {
  offered: readonly string[];
  onChange: (tools: ToolLists) => void;
}

/** Changes all tools at once, and explains whether the lists include tools that are added later. */
function ToolListControls({ tools, offered, onChange }: ListProps & { tools: ToolLists }) {
  const missing = findMissing(tools.execute, offered);
  return (
    <div className="stack">
      <div className="row">
        <button
          type="button"
          className="small"
          disabled={isAll(tools.execute)}
          onClick={() => onChange({ ...tools, execute: ALL })}
        >
          Enable all
        </button>
        <button
          type="button"
          className="small"
          disabled={tools.execute.length === 0}
          onClick={() => onChange({ execute: NONE, auto: NONE })}
        >
          Disable all
        </button>
        <button
          type="button"
          className="small"
          disabled={tools.auto.length === 0}
          onClick={() => onChange({ ...tools, auto: NONE })}
        >
          Disable automatic execution
        </button>
      </div>
      <p className="hint">
        {isAll(tools.execute)
          ? "All tools are enabled, including any the server adds later."
          : "Only the tools selected below are enabled. Tools the server adds later stay disabled."}{" "}
        {isAll(tools.auto) && "All enabled tools are automatically executed, including later ones."}
      </p>
      {missing.length > 0 && (
        <Notice tone="neutral">{`Enabled but not currently offered: ${missing.join(", ")}`}</Notice>
      )}
    </div>
  );
}

interface RowProps extends ListProps {
  tool: ToolLine;
  description: string;
  lists: ToolLists;
}

function ToolRow({ tool, description, lists, offered, onChange }: RowProps) {
  const enabled = includesTool(lists.execute, tool.name);
  const onOrOff = (on: boolean) => (on ? "on" : "off");
  return (
    <div className="tool-row">
      <div>
        <div className="row">
          <span className="name mono">{tool.name}</span>
          {tool.verdict === "ask" && (
            <Badge tone="warn" title="A rule requires approval">
              ask
            </Badge>
          )}
          {tool.verdict === "hidden" && enabled && (
            <Badge tone="bad" title="Hidden from all callers">
              hidden by a rule
            </Badge>
          )}
        </div>
        {description !== "" && <p className="hint">{description}</p>}
      </div>
      <Switch
        label={`Enable ${tool.name}`}
        hideLabel
        on={enabled}
        onChange={(on) => onChange(setEnabled(lists, tool.name, onOrOff(on), offered))}
      />
      <Switch
        label={`Automatically execute tool ${tool.name}`}
        hideLabel
        on={isAutoExecuted(lists, tool.name)}
        disabled={!enabled}
        onChange={(on) => onChange({ ...lists, auto: setTool(lists.auto, tool.name, onOrOff(on), offered) })}
      />
    </div>
  );
}
