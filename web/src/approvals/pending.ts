/** The number of pending approvals, for the badge in the sidebar. */

import { request } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { ApprovalView as Approval } from "../api/schema.ts";

export function usePendingCount(): number {
  const { data, reload } = useResource("pending", (signal) =>
    request<{ approvals: Approval[] }>("/api/approvals?limit=100", { signal }),
  );
  useReloadOn(["approval"], reload);
  return data?.approvals.length ?? 0;
}
