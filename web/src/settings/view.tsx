/** Settings of tool execution, and what the gateway has done since it started. */

import { ask } from "../api/client.ts";
import { useResource } from "../api/hooks.ts";
import type { ToolManager } from "../api/types.ts";
import { Failure, Head, Loading } from "../ui/parts.tsx";
import { Overview } from "./overview.tsx";
import { ToolManagerForm } from "./tool-manager.tsx";

const PATH = "/api/settings/mcp/tool-manager-config";

export function SettingsView() {
  const { data, error, set } = useResource("tool-manager", (signal) => ask<ToolManager>(PATH, { signal }));
  const save = async (patch: Partial<Record<keyof ToolManager, unknown>>) =>
    set(await ask<ToolManager>(PATH, { method: "PUT", body: patch }));
  return (
    <>
      <Head title="Settings" says="MCP configuration: how tools are run and shown." />
      <div className="stack">
        <Failure error={error} />
        {data === null && error === null && <Loading />}
        {data !== null && <ToolManagerForm settings={data} onSave={save} />}
        <Overview />
      </div>
    </>
  );
}
