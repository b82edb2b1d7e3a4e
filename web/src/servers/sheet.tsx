/** One server: how it is, its settings, its tools. Saving sends what was changed and nothing else. */

import { useState } from "react";

import { ask } from "../api/client.ts";
import { useAction, useReloadOn, useResource } from "../api/hooks.ts";
import type { Client } from "../api/types.ts";
import { Badge, Block, Failure, Loading, Status } from "../ui/parts.tsx";
import { Confirm, Sheet } from "../ui/sheet.tsx";
import { AvailableTools } from "./available-tools.tsx";
import { BasicInformation } from "./basic.tsx";
import { Condition } from "./condition.tsx";
import { draftOf, isEmpty, patchOf, type Draft } from "./draft.ts";
import { stateOf, useRetries } from "./state.ts";

const UNSAVED = "What you changed is not saved yet.";

interface Props {
  id: string;
  onClose: () => void;
  onChanged: () => void;
}

export function ServerSheet({ id, onClose, onChanged }: Props) {
  const path = `/api/mcp/client/${encodeURIComponent(id)}`;
  const client = useResource(id, (signal) => ask<Client>(path, { signal }));
  useReloadOn(["server", "call"], client.reload);
  useRetries(client.data && [client.data], client.reload);
  if (client.data === null) {
    return (
      <Sheet title={id} onClose={onClose}>
        {client.error === null ? <Loading /> : <Failure error={client.error} />}
      </Sheet>
    );
  }
  const taken = (changed: Client) => {
    client.set(changed);
    onChanged();
  };
  return <Loaded client={client.data} path={path} onTaken={taken} onClose={onClose} onChanged={onChanged} />;
}

interface LoadedProps {
  client: Client;
  path: string;
  onTaken: (client: Client) => void;
  onClose: () => void;
  onChanged: () => void;
}

function Loaded({ client, path, onTaken, onClose, onChanged }: LoadedProps) {
  const { config } = client;
  // Only what was edited: the rest follows the server as it changes under the sheet.
  const [edits, setEdits] = useState<Partial<Draft>>({});
  const [saved, setSaved] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const saving = useAction();
  const draft: Draft = { ...draftOf(config), ...edits };
  const patch = patchOf(config, draft);
  const clean = isEmpty(patch);
  const edit = (change: Partial<Draft>) => {
    setEdits({ ...edits, ...change });
    setSaved(false);
    saving.clear();
  };
  const save = () =>
    saving.run(async () => {
      onTaken(await ask<Client>(path, { method: "PUT", body: patch }));
      setEdits({});
      setSaved(true);
    });
  const reconnect = () =>
    saving.run(async () => {
      onTaken(await ask<Client>(`${path}/reconnect`, { method: "POST" }));
    });

  const own = config.connection_type === "inprocess";
  const foot = (
    <>
      <Failure error={saving.error} />
      <span className="row aside">
        <button type="button" className="danger" disabled={own} onClick={() => setDeleting(true)}>
          Delete
        </button>
        <button type="button" disabled={saving.busy || config.disabled} onClick={() => void reconnect()}>
          Reconnect
        </button>
      </span>
      {saved && clean && <span className="soft">Saved</span>}
      <button type="button" className="primary" disabled={clean || saving.busy} onClick={() => void save()}>
        {saving.busy ? "Saving…" : "Save Changes"}
      </button>
    </>
  );
  return (
    <>
      <Sheet
        title={config.name}
        says={<Signs client={client} />}
        foot={foot}
        loses={clean ? null : UNSAVED}
        onClose={onClose}
      >
        <Condition client={client} />
        <BasicInformation client={client} draft={draft} onEdit={edit} />
        <AvailableTools client={client} draft={draft} onEdit={edit} />
        {client.stderr_tail !== null && (
          <section className="section">
            <h2>Standard error</h2>
            <Block text={client.stderr_tail} label="The last lines of standard error" />
          </section>
        )}
      </Sheet>
      {deleting && (
        <DeleteServer
          client={client}
          path={path}
          onClose={() => setDeleting(false)}
          onDeleted={() => {
            onChanged();
            onClose();
          }}
        />
      )}
    </>
  );
}

function Signs({ client }: { client: Client }) {
  const { label, tone } = stateOf(client.state);
  return (
    <span className="row">
      <Status tone={tone}>{label}</Status>
      {client.config.is_code_mode_client && <Badge tone="accent">code mode</Badge>}
      {client.source !== null && <Badge>{client.source}</Badge>}
    </span>
  );
}

interface DeleteProps {
  client: Client;
  path: string;
  onClose: () => void;
  onDeleted: () => void;
}

function DeleteServer({ client, path, onClose, onDeleted }: DeleteProps) {
  const action = useAction();
  const remove = () =>
    void action.run(async () => {
      await ask(path, { method: "DELETE" });
      onDeleted();
    });
  const inFile = client.source?.includes("file") ?? false;
  return (
    <Confirm
      title={`Delete ${client.config.name}?`}
      verb="Delete server"
      busy={action.busy}
      error={action.error}
      onConfirm={remove}
      onClose={onClose}
    >
      <p>
        Its connection is closed and its tools vanish for everyone.
        {inFile && " It stands in the configuration file; it stays deleted until its entry there is changed."}
      </p>
    </Confirm>
  );
}
