/** The callers' keys. The secret itself is shown only once, when a key is created or rotated. */

import { useState } from "react";

import { fetchAll, request } from "../api/client.ts";
import { useAction, useResource } from "../api/hooks.ts";
import type { KeyRequirementView, KeyView as Key, NewKey } from "../api/schema.ts";
import { formatDateTime } from "../ui/format.ts";
import { EmptyState, ErrorNotice, Loading, PageHeader, Status, Table } from "../ui/components.tsx";
import { ConfirmDialog } from "../ui/sheet.tsx";
import { AddKey } from "./add.tsx";
import { NewKeyDialog } from "./new-key.tsx";
import { KeyRequirement } from "./requirement.tsx";

/** A change to a key that awaits confirmation. */
type PendingChange = { verb: "rotate" | "delete"; key: Key };

export function KeysView() {
  const keys = useResource("keys", (signal) => fetchAll<Key>("/api/keys", "keys", signal));
  const requirement = useResource("keys-required", (signal) =>
    request<KeyRequirementView>("/api/keys-required", { signal }),
  );
  const data = keys.data;
  const error = keys.error ?? requirement.error;
  const reload = () => {
    keys.reload();
    requirement.reload();
  };
  const [adding, setAdding] = useState(false);
  const [pending, setPending] = useState<PendingChange | null>(null);
  const [newKey, setNewKey] = useState<NewKey | null>(null);
  const action = useAction();
  const showNewKey = (key: NewKey) => {
    setAdding(false);
    setNewKey(key);
    reload();
  };
  const toggle = (key: Key) =>
    void action.run(async () => {
      await request(keyPath(key), { method: "PUT", body: { enabled: !key.enabled } });
      reload();
    });
  const confirm = () =>
    void action.run(async () => {
      if (pending?.verb === "rotate") {
        showNewKey(await request<NewKey>(`${keyPath(pending.key)}/rotate`, { method: "POST" }));
      } else if (pending) {
        await request(keyPath(pending.key), { method: "DELETE" });
        reload();
      }
      setPending(null);
    });
  return (
    <>
      <PageHeader
        title="Keys"
        description="Who may call tools. Once a key has existed, calls without one are rejected."
      >
        <button type="button" className="primary" onClick={() => setAdding(true)}>
          Add key
        </button>
      </PageHeader>
      <div className="stack">
        <ErrorNotice error={error ?? (pending === null ? action.error : null)} />
        {data === null && error === null && <Loading />}
        {requirement.data !== null && (
          <KeyRequirement requirement={requirement.data} onChange={requirement.set} />
        )}
        {data !== null && data.length === 0 && (
          <EmptyState title="No keys">
            <p>Add one to allow remote callers or to limit what a program may do.</p>
          </EmptyState>
        )}
        {data !== null && data.length > 0 && (
          <KeyTable keys={data} busy={action.busy} onToggle={toggle} onChange={setPending} />
        )}
      </div>
      {adding && <AddKey onClose={() => setAdding(false)} onCreated={showNewKey} />}
      {newKey !== null && <NewKeyDialog newKey={newKey} onClose={() => setNewKey(null)} />}
      {pending !== null && (
        <ConfirmDialog
          title={
            pending.verb === "rotate" ? `Rotate key ${pending.key.name}?` : `Delete key ${pending.key.name}?`
          }
          confirmLabel={pending.verb === "rotate" ? "Rotate key" : "Delete key"}
          busy={action.busy}
          error={action.error}
          onConfirm={confirm}
          onClose={() => setPending(null)}
        >
          <p>
            {pending.verb === "rotate"
              ? "The current key stops working immediately. Callers that use it need the new one."
              : "Callers that use this key are rejected immediately, and its grants are revoked."}
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}

function keyPath(key: Key): string {
  return `/api/keys/${encodeURIComponent(key.name)}`;
}

interface TableProps {
  keys: Key[];
  busy: boolean;
  onToggle: (key: Key) => void;
  onChange: (change: PendingChange) => void;
}

function KeyTable({ keys, busy, onToggle, onChange }: TableProps) {
  return (
    <Table columns={["Key", "State", "Tools and roles", "Limits", { hidden: "Actions" }]}>
      {keys.map((key) => (
        <tr key={key.name}>
          <td>
            <span className="name">{key.name}</span>
            {key.description !== null && <div className="faint">{key.description}</div>}
          </td>
          <td>
            <KeyState of={key} />
          </td>
          <td className="soft">
            {describeGrants(key)}
            {describeExceptions(key).map((exception) => (
              <div key={exception}>{exception}</div>
            ))}
            {key.problems.map((problem) => (
              <div key={problem}>
                <Status tone="warn">{problem}</Status>
              </div>
            ))}
          </td>
          <td className="soft">{describeLimits(key)}</td>
          <td>
            {key.source === "file" ? (
              <span className="faint">Managed in the config file</span>
            ) : (
              <span className="row">
                <button type="button" className="small" disabled={busy} onClick={() => onToggle(key)}>
                  {key.enabled ? "Disable" : "Enable"}
                </button>
                <button type="button" className="small" onClick={() => onChange({ verb: "rotate", key })}>
                  Rotate
                </button>
                <button
                  type="button"
                  className="small danger"
                  onClick={() => onChange({ verb: "delete", key })}
                >
                  Delete
                </button>
              </span>
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function KeyState({ of: key }: { of: Key }) {
  if (!key.enabled) {
    return <Status tone="neutral">Disabled</Status>;
  }
  if (key.expired) {
    return <Status tone="bad">Expired</Status>;
  }
  return (
    <>
      <Status tone="good">Active</Status>
      {key.expires_at !== null && <div className="faint">until {formatDateTime(key.expires_at)}</div>}
    </>
  );
}

function describeGrants({ tools, roles }: Key): string {
  const toolText = tools === null ? "All tools" : tools.length === 0 ? "No tools" : tools.join(", ");
  return roles.length === 0 ? toolText : `${toolText}; roles: ${roles.join(", ")}`;
}

/** Describes the settings that differ from the defaults. */
function describeExceptions({ provider_tools, approval_by }: Key): string[] {
  const exceptions: string[] = [];
  if (provider_tools !== null) {
    exceptions.push(`Provider tools: ${provider_tools ? "allowed" : "refused"}`);
  }
  if (approval_by !== null) {
    exceptions.push(`Approval by: ${approval_by.join(", ") || "nobody"}`);
  }
  return exceptions;
}

function describeLimits({ rate_limit, max_in_flight, budget }: Key): string {
  const per = budget?.per ? ` per ${budget.per}` : "";
  const parts = [
    rate_limit,
    max_in_flight === null ? null : `${max_in_flight} concurrent`,
    budget?.calls === undefined ? null : `${budget.calls} calls${per}`,
    budget?.usd === undefined ? null : `$${budget.usd}${per}`,
  ];
  return parts.filter((part) => part !== null).join(", ") || "None";
}
