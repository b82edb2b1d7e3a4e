/** Available Tools: which exist for callers, and which of them run unasked. */

import { useState } from "react";

import { all } from "../api/client.ts";
import { useResource } from "../api/hooks.ts";
import type { Client, Tool, ToolLine } from "../api/types.ts";
import { many } from "../ui/format.ts";
import { Badge, Notice, Search, Switch } from "../ui/parts.tsx";
import type { Draft } from "./draft.ts";
import { ALL, enable, has, isAll, missing, NONE, runsUnasked, turned, type ToolLists } from "./tool-list.ts";

/** Rows that are shown at once. */
const MOST = 200;

interface Props {
  client: Client;
  draft: Draft;
  onEdit: (change: Partial<Draft>) => void;
}

export function AvailableTools({ client, draft, onEdit }: Props) {
  const [search, setSearch] = useState("");
  const name = client.config.name;
  const offered = client.tools.map((tool) => tool.name);
  const described = useResource(`${name} ${offered.length}`, (signal) =>
    all<Tool>(`/api/mcp/tools?server=${encodeURIComponent(name)}`, "tools", signal),
  );
  const says = new Map((described.data ?? []).map((tool) => [tool.name, tool.description ?? ""]));
  const text = search.toLowerCase();
  const found = client.tools.filter((tool) =>
    `${tool.name} ${says.get(tool.name) ?? ""}`.toLowerCase().includes(text),
  );
  const set = (tools: ToolLists) => onEdit({ tools });
  return (
    <section className="section" aria-label="Available Tools">
      <div className="row apart">
        <h2>Available Tools</h2>
        <span className="faint">{many(offered.length, "tool")}</span>
      </div>
      {offered.length === 0 ? (
        <p className="soft">The server offers no tools now. What was chosen for its tools stays as it is.</p>
      ) : (
        <>
          <Search label="Search tools" value={search} onChange={setSearch} />
          <Standing tools={draft.tools} onChange={set} offered={offered} />
          <div>
            <div className="tool-row titles" aria-hidden="true">
              <span>Tool</span>
              <span>Enabled</span>
              <span>Automatically execute tool</span>
            </div>
            {found.slice(0, MOST).map((tool) => (
              <ToolRow
                key={tool.name}
                tool={tool}
                says={says.get(tool.name) ?? ""}
                lists={draft.tools}
                offered={offered}
                onChange={set}
              />
            ))}
            {found.length > MOST && (
              <p className="soft">{`And ${many(found.length - MOST, "more tool")}: search to find them.`}</p>
            )}
            {found.length === 0 && <p className="soft">No tool has “{search}” in its name or description.</p>}
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

/** What the lists say beyond single tools: whether tools that come later are in them too. */
function Standing({ tools, offered, onChange }: ListProps & { tools: ToolLists }) {
  const gone = missing(tools.execute, offered);
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
          None automatically
        </button>
      </div>
      <p className="hint">
        {isAll(tools.execute)
          ? "All tools are enabled, also those that the server brings later."
          : "Only the tools below that are switched on are enabled. Tools that the server brings later will not be enabled by themselves."}{" "}
        {isAll(tools.auto) && "All enabled tools run unasked, also later ones."}
      </p>
      {gone.length > 0 && <Notice tone="quiet">{`Enabled, but not offered now: ${gone.join(", ")}`}</Notice>}
    </div>
  );
}

interface RowProps extends ListProps {
  tool: ToolLine;
  says: string;
  lists: ToolLists;
}

function ToolRow({ tool, says, lists, offered, onChange }: RowProps) {
  const enabled = has(lists.execute, tool.name);
  const to = (on: boolean) => (on ? "on" : "off");
  return (
    <div className="tool-row">
      <div>
        <div className="row">
          <span className="name mono">{tool.name}</span>
          {tool.verdict === "ask" && (
            <Badge tone="warn" title="A rule wants it approved">
              ask
            </Badge>
          )}
          {tool.verdict === "hidden" && enabled && (
            <Badge tone="bad" title="No caller can see it">
              hidden by a rule
            </Badge>
          )}
        </div>
        {says !== "" && <p className="hint">{says}</p>}
      </div>
      <Switch
        label={`Enable ${tool.name}`}
        hidden
        on={enabled}
        onChange={(on) => onChange(enable(lists, tool.name, to(on), offered))}
      />
      <Switch
        label={`Automatically execute tool ${tool.name}`}
        hidden
        on={runsUnasked(lists, tool.name)}
        disabled={!enabled}
        onChange={(on) => onChange({ ...lists, auto: turned(lists.auto, tool.name, to(on), offered) })}
      />
    </div>
  );
}
