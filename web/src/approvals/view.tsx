/** Approvals: calls that need a decision, and past decisions. */

import { useState } from "react";

import { fetchAll, request } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { ApprovalView as Approval } from "../api/schema.ts";
import { EmptyState, ErrorNotice, Loading, PageHeader, SegmentedControl } from "../ui/components.tsx";
import { ApprovalCard } from "./card.tsx";

type Filter = "pending" | "all";

const FILTERS = [
  { value: "pending", label: "Pending" },
  { value: "all", label: "All" },
] as const;

export function ApprovalsView({ item }: { item: string | null }) {
  const [filter, setFilter] = useState<Filter>("pending");
  const list = useResource(`approvals ${filter}`, (signal) => fetchApprovals(filter, signal));
  const linked = useResource(`approval ${item}`, (signal) => fetchApproval(item, signal));
  useReloadOn(["approval"], list.reload);
  useReloadOn(["approval"], linked.reload);
  // The approval from the link comes first, whatever its state.
  const first = linked.data;
  const others = (list.data ?? []).filter(({ id }) => id !== first?.id);
  const shown = first === null ? others : [first, ...others];
  const reload = () => {
    list.reload();
    linked.reload();
  };
  return (
    <>
      <PageHeader title="Approvals" description="Tool calls that need a decision before they run.">
        <SegmentedControl label="Filter approvals" value={filter} options={FILTERS} onChange={setFilter} />
      </PageHeader>
      <div className="stack">
        <ErrorNotice error={list.error} />
        {item !== null && <ErrorNotice error={linked.error} />}
        {list.data === null && list.error === null && <Loading />}
        {list.data !== null && shown.length === 0 && <NoApprovals filter={filter} />}
        {shown.map((approval) => (
          <ApprovalCard key={approval.id} approval={approval} onDecided={reload} />
        ))}
      </div>
    </>
  );
}

/** Maximum number of approvals shown under "All". */
const MAX_SHOWN = 200;

/** Fetches approvals: pending ones oldest first, all of them newest first. */
async function fetchApprovals(filter: Filter, signal: AbortSignal): Promise<Approval[]> {
  // The API returns the oldest first.
  const approvals = await fetchAll<Approval>(`/api/approvals?state=${filter}`, "approvals", signal);
  return filter === "pending" ? approvals : approvals.slice(-MAX_SHOWN).reverse();
}

async function fetchApproval(id: string | null, signal: AbortSignal): Promise<Approval | null> {
  return id === null ? null : request<Approval>(`/api/approvals/${encodeURIComponent(id)}`, { signal });
}

function NoApprovals({ filter }: { filter: Filter }) {
  return filter === "pending" ? (
    <EmptyState title="No pending approvals">
      <p>
        Calls that match an <code>ask</code> rule appear here immediately.
      </p>
    </EmptyState>
  ) : (
    <EmptyState title="No approvals yet" />
  );
}
