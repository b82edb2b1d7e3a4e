/** The catalog: every tool that a caller without a key may use. */

import { useState } from "react";

import { useReloadOn } from "../api/hooks.ts";
import { query, useList, useSettled } from "../api/list.ts";
import type { Tool } from "../api/types.ts";
import { go } from "../route.ts";
import { More } from "../ui/more.tsx";
import { Badge, Empty, Failure, Head, Loading, Search, Table } from "../ui/parts.tsx";
import { ToolSheet } from "./sheet.tsx";
import { verdictOf } from "./verdict.ts";

export function ToolsView({ item }: { item: string | null }) {
  const [search, setSearch] = useState("");
  const settled = useSettled(search);
  const list = useList<Tool>(`/api/mcp/tools${query({ search: settled })}`, "tools");
  useReloadOn(["server"], list.reload);
  const { items, error } = list;
  return (
    <>
      <Head title="Tools" says="What callers without a key can use, as the servers defined it." />
      <div className="bar">
        <Search label="Search names and descriptions" value={search} onChange={setSearch} />
      </div>
      <Failure error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && <NoTools search={settled.trim()} />}
      {items !== null && items.length > 0 && <ToolTable tools={items} />}
      <More list={list} />
      {item !== null && <ToolSheet key={item} alias={item} onClose={() => go("tools")} />}
    </>
  );
}

function NoTools({ search }: { search: string }) {
  if (search === "") {
    return <Empty title="No tools yet">Tools come with servers that are healthy and enabled.</Empty>;
  }
  return (
    <Empty title={`No tool has “${search}” in its name or description`}>
      <p>It may exist all the same and be hidden by a list, a rule or a server that is away.</p>
      <button type="button" onClick={() => go("tools", search)}>
        Explain “{search}”
      </button>
    </Empty>
  );
}

function ToolTable({ tools }: { tools: Tool[] }) {
  return (
    <Table heads={["Tool", "Description", "Server", "Verdict"]}>
      {tools.map((tool) => (
        <tr key={tool.alias} className="opens" onClick={() => go("tools", tool.alias)}>
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
              tone={verdictOf(tool.verdict).tone}
              title={`${verdictOf(tool.verdict).says} (${tool.because})`}
            >
              {tool.verdict}
            </Badge>
          </td>
        </tr>
      ))}
    </Table>
  );
}
