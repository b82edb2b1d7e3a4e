/** All servers, how they are and why; each opens its sheet. */

import { useState } from "react";

import { all } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { Client } from "../api/types.ts";
import { go } from "../route.ts";
import { count } from "../ui/format.ts";
import { Badge, Empty, Failure, Head, Loading, Status, Table } from "../ui/parts.tsx";
import { AddServer } from "./add.tsx";
import { ImportServers } from "./import.tsx";
import { ServerSheet } from "./sheet.tsx";
import { reachOf, stateOf, troubleOf, useRetries } from "./state.ts";

type Open = "add" | "import" | null;

export function ServersView({ item }: { item: string | null }) {
  const { data, error, reload } = useResource("clients", (signal) =>
    all<Client>("/api/mcp/clients", "clients", signal),
  );
  useReloadOn(["server", "call"], reload);
  useRetries(data, reload);
  const [open, setOpen] = useState<Open>(null);
  const shut = () => setOpen(null);
  return (
    <>
      <Head title="Servers" says="The MCP servers behind this gateway, and the tools they bring.">
        <button type="button" onClick={() => setOpen("import")}>
          Import
        </button>
        <button type="button" className="primary" onClick={() => setOpen("add")}>
          Add server
        </button>
      </Head>
      <Failure error={error} />
      {data === null && error === null && <Loading />}
      {data !== null && data.length === 0 && <NoServers onAdd={() => setOpen("add")} />}
      {data !== null && data.length > 0 && <ServerTable clients={data} />}
      {open === "add" && <AddServer onClose={shut} onAdded={reload} />}
      {open === "import" && <ImportServers onClose={shut} onImported={reload} />}
      {item !== null && <ServerSheet key={item} id={item} onClose={() => go("servers")} onChanged={reload} />}
    </>
  );
}

function NoServers({ onAdd }: { onAdd: () => void }) {
  return (
    <Empty title="No servers yet">
      <p>
        Add one by its command or address, or import the settings of Claude Desktop, Claude Code, Cursor or VS
        Code.
      </p>
      <button type="button" className="primary" onClick={onAdd}>
        Add server
      </button>
    </Empty>
  );
}

function ServerTable({ clients }: { clients: Client[] }) {
  return (
    <Table heads={["Server", "State", { number: "Tools" }, "Transport", { number: "Calls" }, "Settings"]}>
      {clients.map((client) => (
        <ServerRow key={client.config.client_id} client={client} />
      ))}
    </Table>
  );
}

function ServerRow({ client }: { client: Client }) {
  const { config, figures } = client;
  const { label, tone } = stateOf(client.state);
  const trouble = troubleOf(client);
  return (
    <tr className="opens" onClick={() => go("servers", config.name)}>
      <td className="wide">
        <button type="button" className="name">
          {config.name}
        </button>
        <div className="faint mono reach" title={reachOf(client)}>
          {reachOf(client)}
        </div>
        {trouble !== null && <div className="soft">{trouble}</div>}
      </td>
      <td>
        <Status tone={tone}>{label}</Status>
      </td>
      <td className="number" data-label="Tools">
        {count(client.tools.length)}
      </td>
      <td>{config.connection_type}</td>
      <td className="number" data-label="Calls">
        {count(figures.calls)}
      </td>
      <td>
        <span className="row">
          {config.is_code_mode_client && <Badge tone="accent">code mode</Badge>}
          {client.source !== null && <Badge title="Where its settings come from">{client.source}</Badge>}
        </span>
      </td>
    </tr>
  );
}
