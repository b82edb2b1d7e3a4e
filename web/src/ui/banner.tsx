/**
 * Banners that are shown on every view: while the gateway cannot record (in every sheet, too), and while its
 * configuration has problems.
 */

import { request } from "../api/client.ts";
import { usePolling, useRecordingProblem, useResource } from "../api/hooks.ts";
import type { ProblemList } from "../api/schema.ts";

const PROBLEM_POLL_INTERVAL_MS = 5000;

export function RecordingBanner() {
  const problem = useRecordingProblem();
  return problem === null ? null : <RecordingProblem problem={problem} />;
}

export function RecordingProblem({ problem }: { problem: string }) {
  return (
    <div className="banner" role="alert">
      <strong>The gateway cannot record what it does: {problem}</strong>
      <p>
        Calls and changes that must be recorded are refused. They are accepted again as soon as records can be
        written, for example once the disk has free space.
      </p>
    </div>
  );
}

export function ConfigurationBanner() {
  const { data, reload } = useResource("problems", (signal) =>
    request<ProblemList>("/api/problems", { signal }),
  );
  usePolling(PROBLEM_POLL_INTERVAL_MS, reload);
  return data === null ? null : <ConfigurationProblems list={data} />;
}

export function ConfigurationProblems({ list }: { list: ProblemList }) {
  if (list.problems.length === 0) {
    return null;
  }
  return (
    <div className="banner" role="alert">
      <strong>The configuration needs attention</strong>
      {list.problems.map(({ message }) => (
        <p key={message}>{message}</p>
      ))}
    </div>
  );
}
