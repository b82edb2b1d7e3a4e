/** The keys of callers. A key itself is shown once, when it is made. */

import { useState } from "react";

import { all, ask } from "../api/client.ts";
import { useAction, useResource } from "../api/hooks.ts";
import type { Key, NewKey } from "../api/types.ts";
import { clock } from "../ui/format.ts";
import { Empty, Failure, Head, Loading, Status, Table } from "../ui/parts.tsx";
import { Confirm } from "../ui/sheet.tsx";
import { AddKey } from "./add.tsx";
import { ShownOnce } from "./shown-once.tsx";

type Asked = { verb: "rotate" | "delete"; key: Key } | null;

export function KeysView() {
  const { data, error, reload } = useResource("keys", (signal) => all<Key>("/api/keys", "keys", signal));
  const [adding, setAdding] = useState(false);
  const [asked, setAsked] = useState<Asked>(null);
  const [made, setMade] = useState<NewKey | null>(null);
  const action = useAction();
  const show = (key: NewKey) => {
    setAdding(false);
    setMade(key);
    reload();
  };
  const toggle = (key: Key) =>
    void action.run(async () => {
      await ask(pathOf(key), { method: "PUT", body: { enabled: !key.enabled } });
      reload();
    });
  const confirm = () =>
    void action.run(async () => {
      if (asked?.verb === "rotate") {
        show(await ask<NewKey>(`${pathOf(asked.key)}/rotate`, { method: "POST" }));
      } else if (asked) {
        await ask(pathOf(asked.key), { method: "DELETE" });
        reload();
      }
      setAsked(null);
    });
  return (
    <>
      <Head
        title="Keys"
        says="Who may call, and how much. Once there is a key, calls without one are refused."
      >
        <button type="button" className="primary" onClick={() => setAdding(true)}>
          Add key
        </button>
      </Head>
      <div className="stack">
        <Failure error={error ?? (asked === null ? action.error : null)} />
        {data === null && error === null && <Loading />}
        {data !== null && data.length === 0 && (
          <Empty title="No keys yet">
            <p>
              Callers on the gateway's machine need none. Add a key to let others in, or to bound what a
              program may do.
            </p>
          </Empty>
        )}
        {data !== null && data.length > 0 && (
          <KeyTable keys={data} busy={action.busy} onToggle={toggle} onAsk={setAsked} />
        )}
      </div>
      {adding && <AddKey onClose={() => setAdding(false)} onMade={show} />}
      {made !== null && <ShownOnce made={made} onClose={() => setMade(null)} />}
      {asked !== null && (
        <Confirm
          title={
            asked.verb === "rotate"
              ? `Replace the key ${asked.key.name}?`
              : `Delete the key ${asked.key.name}?`
          }
          verb={asked.verb === "rotate" ? "Make a new key" : "Delete key"}
          busy={action.busy}
          error={action.error}
          onConfirm={confirm}
          onClose={() => setAsked(null)}
        >
          <p>
            {asked.verb === "rotate"
              ? "The old one ends at once; whoever uses it needs the new one."
              : "Whoever uses it is refused from now on, and what was granted to it is taken back."}
          </p>
        </Confirm>
      )}
    </>
  );
}

function pathOf(key: Key): string {
  return `/api/keys/${encodeURIComponent(key.name)}`;
}

interface TableProps {
  keys: Key[];
  busy: boolean;
  onToggle: (key: Key) => void;
  onAsk: (asked: Asked) => void;
}

function KeyTable({ keys, busy, onToggle, onAsk }: TableProps) {
  return (
    <Table heads={["Key", "State", "Tools and roles", "Limits", { unseen: "Actions" }]}>
      {keys.map((key) => (
        <tr key={key.name}>
          <td>
            <span className="name">{key.name}</span>
            {key.description !== null && <div className="faint">{key.description}</div>}
          </td>
          <td>
            <KeyState of={key} />
          </td>
          <td className="soft">{grantsOf(key)}</td>
          <td className="soft">{limitsOf(key)}</td>
          <td>
            {key.source === "file" ? (
              <span className="faint">changed in the file</span>
            ) : (
              <span className="row">
                <button type="button" className="small" disabled={busy} onClick={() => onToggle(key)}>
                  {key.enabled ? "Disable" : "Enable"}
                </button>
                <button type="button" className="small" onClick={() => onAsk({ verb: "rotate", key })}>
                  Rotate
                </button>
                <button type="button" className="small danger" onClick={() => onAsk({ verb: "delete", key })}>
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
    return <Status tone="quiet">Disabled</Status>;
  }
  if (key.expired) {
    return <Status tone="bad">Expired</Status>;
  }
  return (
    <>
      <Status tone="good">Active</Status>
      {key.expires_at !== null && <div className="faint">until {clock(key.expires_at)}</div>}
    </>
  );
}

function grantsOf({ tools, roles }: Key): string {
  const granted = tools === null ? "all tools" : tools.length === 0 ? "no tools" : tools.join(", ");
  return roles.length === 0 ? granted : `${granted}; roles ${roles.join(", ")}`;
}

function limitsOf({ rate_limit, max_in_flight, budget }: Key): string {
  const per = budget?.per ? ` a ${budget.per}` : "";
  const parts = [
    rate_limit,
    max_in_flight === null ? null : `${max_in_flight} at once`,
    budget?.calls === undefined ? null : `${budget.calls} calls${per}`,
    budget?.usd === undefined ? null : `$${budget.usd}${per}`,
  ];
  return parts.filter((part) => part !== null).join(", ") || "none";
}
