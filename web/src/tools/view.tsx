/** The tool catalog: every tool visible to a caller without a key. */

import { useState } from "react";

import { useReloadOn } from "../api/hooks.ts";
import { buildQuery, useDebounced, useList } from "../api/list.ts";
import type { ToolEntry as Tool } from "../api/schema.ts";
import { navigate } from "../route.ts";
import { ShowMore } from "../ui/show-more.tsx";
import {
  Badge,
  EmptyState,
  ErrorNotice,
  Loading,
  PageHeader,
  SearchInput,
  Table,
} from "../ui/components.tsx";
import { DefinitionNotice, useDefinitions } from "./definitions.tsx";
import { ToolSheet } from "./sheet.tsx";
import { describeVerdict } from "./verdict.ts";

export function ToolsView({ item }: { item: string | null }) {
  const [search, setSearch] = useState("");
  const debouncedSearch = useDebounced(search);
  const list = useList<Tool>(`/api/mcp/tools${buildQuery({ search: debouncedSearch })}`, "tools");
  const definitions = useDefinitions();
  useReloadOn(["server"], list.reload);
  const { items, error } = list;
  return (
    <>
      <PageHeader title="Tools" description="The tools available to callers without a key." />
      {definitions.data !== null && <DefinitionNotice list={definitions.data} />}
      <div className="toolbar">
        <SearchInput label="Search names and descriptions" value={search} onChange={setSearch} />
      </div>
      <ErrorNotice error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && <NoTools search={debouncedSearch.trim()} />}
      {items !== null && items.length > 0 && <ToolTable tools={items} />}
      <ShowMore list={list} />
      {item !== null && (
        <ToolSheet
          key={item}
          alias={item}
          onTrusted={() => {
            definitions.reload();
            list.reload();
          }}
          onClose={() => navigate("tools")}
        />
      )}
    </>
  );
}

function NoTools({ search }: { search: string }) {
  if (search === "") {
    return <EmptyState title="No tools yet">Tools appear when a server is enabled and healthy.</EmptyState>;
  }
  return (
    <EmptyState title={`No tools match “${search}”`}>
      <p>The tool may be hidden by a tool list or a rule, or its server may be unavailable.</p>
      <button type="button" onClick={() => navigate("tools", search)}>
        Explain “{search}”
      </button>
    </EmptyState>
  );
}

function ToolTable({ tools }: { tools: Tool[] }) {
  return (
    <Table columns={["Tool", "Description", "Server", "Verdict"]}>
      {tools.map((tool) => (
        <tr key={tool.alias} className="clickable" onClick={() => navigate("tools", tool.alias)}>
          <td>
            <button type="button" className="name mono">
              {tool.alias}
            </button>
          </td>
          <td className="wide soft">
            <span className="two-lines">{tool.description ?? tool.title ?? ""}</span>
          </td>
          <td>{tool.server}</td>
          <td>
            <Badge
              tone={describeVerdict(tool.verdict).tone}
              title={`${describeVerdict(tool.verdict).description} (${tool.because})`}
            >
              {tool.verdict}
            </Badge>
          </td>
        </tr>
      ))}
    </Table>
  );
}
