/** One server: its status, settings and tools. Saving sends only what the user changed. */

import { useState } from "react";

import { request } from "../api/client.ts";
import { useAction, usePolling, useReloadOn, useResource } from "../api/hooks.ts";
import type { ClientEntry as Client } from "../api/schema.ts";
import { Badge, CodeBlock, ErrorNotice, Loading, Status } from "../ui/components.tsx";
import { ConfirmDialog, discardWarning, Sheet } from "../ui/sheet.tsx";
import { AvailableTools } from "./available-tools.tsx";
import { BasicInformation } from "./basic-information.tsx";
import { ServerStatus } from "./status.tsx";
import { buildServerPatch, isEmpty, toDraft, type Draft } from "./draft.ts";
import { describeState, usagePollInterval, useRetryTimer } from "./state.ts";

const UNSAVED_WARNING = discardWarning("Your changes have not been saved.");

interface Props {
  id: string;
  onClose: () => void;
  onChanged: () => void;
}

export function ServerSheet({ id, onClose, onChanged }: Props) {
  const path = `/api/mcp/client/${encodeURIComponent(id)}`;
  const client = useResource(id, (signal) => request<Client>(path, { signal }));
  useReloadOn(["server", "call"], client.reload);
  useRetryTimer(client.data && [client.data], client.reload);
  usePolling(client.data && usagePollInterval([client.data]), client.reload);
  if (client.data === null) {
    return (
      <Sheet title={id} onClose={onClose}>
        {client.error === null ? <Loading /> : <ErrorNotice error={client.error} />}
      </Sheet>
    );
  }
  const applyResponse = (changed: Client) => {
    client.set(changed);
    onChanged();
  };
  return (
    <ServerDetails
      client={client.data}
      path={path}
      onUpdated={applyResponse}
      onClose={onClose}
      onChanged={onChanged}
    />
  );
}

interface DetailsProps {
  client: Client;
  path: string;
  onUpdated: (client: Client) => void;
  onClose: () => void;
  onChanged: () => void;
}

function ServerDetails({ client, path, onUpdated, onClose, onChanged }: DetailsProps) {
  const { config } = client;
  // Only edited fields are stored here; the others follow the server when it changes.
  const [edits, setEdits] = useState<Partial<Draft>>({});
  const [saved, setSaved] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const saving = useAction();
  const draft: Draft = { ...toDraft(config), ...edits };
  const patch = buildServerPatch(config, draft);
  const clean = isEmpty(patch);
  const edit = (change: Partial<Draft>) => {
    setEdits({ ...edits, ...change });
    setSaved(false);
    saving.clear();
  };
  const save = () =>
    saving.run(async () => {
      onUpdated(await request<Client>(path, { method: "PUT", body: patch }));
      setEdits({});
      setSaved(true);
    });
  const reconnect = () =>
    saving.run(async () => {
      onUpdated(await request<Client>(`${path}/reconnect`, { method: "POST" }));
    });

  const builtIn = config.connection_type === "inprocess";
  const footer = (
    <>
      <ErrorNotice error={saving.error} />
      <span className="row aside">
        <button type="button" className="danger" disabled={builtIn} onClick={() => setDeleting(true)}>
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
        subtitle={<ServerBadges client={client} />}
        footer={footer}
        closeWarning={clean ? null : UNSAVED_WARNING}
        onClose={onClose}
      >
        <ServerStatus client={client} />
        <BasicInformation client={client} draft={draft} onEdit={edit} />
        <AvailableTools client={client} draft={draft} onEdit={edit} />
        {client.stderr_tail !== null && (
          <section className="section">
            <h2>Standard error</h2>
            <CodeBlock text={client.stderr_tail} label="Last lines of standard error" />
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

function ServerBadges({ client }: { client: Client }) {
  const { label, tone } = describeState(client.state);
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
      await request(path, { method: "DELETE" });
      onDeleted();
    });
  const inFile = client.source?.includes("file") ?? false;
  return (
    <ConfirmDialog
      title={`Delete ${client.config.name}?`}
      confirmLabel="Delete server"
      busy={action.busy}
      error={action.error}
      onConfirm={remove}
      onClose={onClose}
    >
      <p>
        The connection is closed, and its tools become unavailable to all callers.
        {inFile &&
          " The server is defined in the config file. It stays deleted until its entry there changes."}
      </p>
    </ConfirmDialog>
  );
}
