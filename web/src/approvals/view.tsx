/** Calls that wait for a decision, and those that were decided. */

import { useState } from "react";

import { all, ask } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { Approval } from "../api/types.ts";
import { Choices, Empty, Failure, Head, Loading } from "../ui/parts.tsx";
import { ApprovalCard } from "./card.tsx";

type Which = "pending" | "all";

const WHICH = [
  { value: "pending", label: "Waiting" },
  { value: "all", label: "All" },
] as const;

export function ApprovalsView({ item }: { item: string | null }) {
  const [which, setWhich] = useState<Which>("pending");
  const list = useResource(`approvals ${which}`, (signal) => read(which, signal));
  const named = useResource(`approval ${item}`, (signal) => readOne(item, signal));
  useReloadOn(["approval"], list.reload);
  useReloadOn(["approval"], named.reload);
  // The one that a link leads to stands first, whatever became of it.
  const first = named.data;
  const others = (list.data ?? []).filter(({ id }) => id !== first?.id);
  const shown = first === null ? others : [first, ...others];
  const reload = () => {
    list.reload();
    named.reload();
  };
  return (
    <>
      <Head title="Approvals" says="Calls that a rule wants somebody to decide about before they run.">
        <Choices label="Which approvals" value={which} choices={WHICH} onChange={setWhich} />
      </Head>
      <div className="stack">
        <Failure error={list.error} />
        {item !== null && <Failure error={named.error} />}
        {list.data === null && list.error === null && <Loading />}
        {list.data !== null && shown.length === 0 && <Nothing which={which} />}
        {shown.map((approval) => (
          <ApprovalCard key={approval.id} approval={approval} onDecided={reload} />
        ))}
      </div>
    </>
  );
}

/** Decided ones that are shown. */
const MOST = 200;

/** Lists are the oldest first, which is right for what waits. */
async function read(which: Which, signal: AbortSignal): Promise<Approval[]> {
  const approvals = await all<Approval>(`/api/approvals?state=${which}`, "approvals", signal);
  return which === "pending" ? approvals : approvals.slice(-MOST).reverse();
}

async function readOne(id: string | null, signal: AbortSignal): Promise<Approval | null> {
  return id === null ? null : ask<Approval>(`/api/approvals/${encodeURIComponent(id)}`, { signal });
}

function Nothing({ which }: { which: Which }) {
  return which === "pending" ? (
    <Empty title="Nothing waits for a decision">
      <p>
        Calls show up here when a rule says <code>ask</code>, at once and without reloading.
      </p>
    </Empty>
  ) : (
    <Empty title="No approvals yet" />
  );
}
