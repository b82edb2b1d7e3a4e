/** Settings for tool execution, and usage statistics. */

import { request } from "../api/client.ts";
import { useResource } from "../api/hooks.ts";
import type { ToolManagerView as ToolManager } from "../api/schema.ts";
import { ErrorNotice, Loading, PageHeader } from "../ui/components.tsx";
import { Overview } from "./overview.tsx";
import { ToolManagerForm } from "./tool-manager.tsx";

const PATH = "/api/settings/mcp/tool-manager-config";

export function SettingsView() {
  const { data, error, set } = useResource("tool-manager", (signal) =>
    request<ToolManager>(PATH, { signal }),
  );
  const save = async (patch: Partial<Record<keyof ToolManager, unknown>>) =>
    set(await request<ToolManager>(PATH, { method: "PUT", body: patch }));
  return (
    <>
      <PageHeader title="Settings" description="How tools are executed and shown to models." />
      <div className="stack">
        <ErrorNotice error={error} />
        {data === null && error === null && <Loading />}
        {data !== null && <ToolManagerForm settings={data} onSave={save} />}
        <Overview />
      </div>
    </>
  );
}
