/** All servers and their states. */

import { useState } from "react";

import { fetchAll } from "../api/client.ts";
import { usePolling, useReloadOn, useResource } from "../api/hooks.ts";
import type { ClientEntry as Client } from "../api/schema.ts";
import { navigate } from "../route.ts";
import { formatBytes, formatNumber } from "../ui/format.ts";
import { Badge, EmptyState, ErrorNotice, Loading, PageHeader, Status, Table } from "../ui/components.tsx";
import { AddServer } from "./add.tsx";
import { ImportServers } from "./import.tsx";
import { ServerSheet } from "./sheet.tsx";
import {
  describeEndpoint,
  describeProblem,
  describeState,
  usagePollInterval,
  useRetryTimer,
} from "./state.ts";

type OpenSheet = "add" | "import" | null;

export function ServersView({ item }: { item: string | null }) {
  const { data, error, reload } = useResource("clients", (signal) =>
    fetchAll<Client>("/api/mcp/clients", "clients", signal),
  );
  useReloadOn(["server", "call"], reload);
  useRetryTimer(data, reload);
  usePolling(data && usagePollInterval(data), reload);
  const [open, setOpen] = useState<OpenSheet>(null);
  const close = () => setOpen(null);
  return (
    <>
      <PageHeader title="Servers" description="The MCP servers connected to this gateway.">
        <button type="button" onClick={() => setOpen("import")}>
          Import
        </button>
        <button type="button" className="primary" onClick={() => setOpen("add")}>
          Add server
        </button>
      </PageHeader>
      <ErrorNotice error={error} />
      {data === null && error === null && <Loading />}
      {data !== null && data.length === 0 && <NoServers onAdd={() => setOpen("add")} />}
      {data !== null && data.length > 0 && <ServerTable clients={data} />}
      {open === "add" && <AddServer onClose={close} onAdded={reload} />}
      {open === "import" && <ImportServers onClose={close} onImported={reload} />}
      {item !== null && (
        <ServerSheet key={item} id={item} onClose={() => navigate("servers")} onChanged={reload} />
      )}
    </>
  );
}

function NoServers({ onAdd }: { onAdd: () => void }) {
  return (
    <EmptyState title="No servers yet">
      <p>
        Add a server by command or URL, or import your settings from Claude Desktop, Claude Code, Cursor or VS
        Code.
      </p>
      <button type="button" className="primary" onClick={onAdd}>
        Add server
      </button>
    </EmptyState>
  );
}

function ServerTable({ clients }: { clients: Client[] }) {
  return (
    <Table
      columns={[
        "Server",
        "State",
        { number: "Tools" },
        "Transport",
        { number: "Calls" },
        { number: "Memory" },
        "Settings",
      ]}
    >
      {clients.map((client) => (
        <ServerRow key={client.config.client_id} client={client} />
      ))}
    </Table>
  );
}

function ServerRow({ client }: { client: Client }) {
  const { config, figures } = client;
  const { label, tone } = describeState(client.state);
  const problem = describeProblem(client);
  const memory = client.process_usage?.memory_bytes;
  return (
    <tr className="clickable" onClick={() => navigate("servers", config.name)}>
      <td className="wide">
        <button type="button" className="name">
          {config.name}
        </button>
        <div className="faint mono endpoint" title={describeEndpoint(client)}>
          {describeEndpoint(client)}
        </div>
        {problem !== null && <div className="soft">{problem}</div>}
      </td>
      <td>
        <Status tone={tone}>{label}</Status>
      </td>
      <td className="number" data-label="Tools">
        {formatNumber(client.tools.length)}
      </td>
      <td>{config.connection_type}</td>
      <td className="number" data-label="Calls">
        {formatNumber(figures.calls)}
      </td>
      <td className="number" data-label="Memory">
        {memory ? formatBytes(memory) : "–"}
      </td>
      <td>
        <span className="row">
          {config.is_code_mode_client && <Badge tone="accent">code mode</Badge>}
          {client.source !== null && <Badge title="Source of its settings">{client.source}</Badge>}
        </span>
      </td>
    </tr>
  );
}
