/** The status of a server: its state, what it reported about itself, and problems. */

import { Fragment } from "react";

import type { ClientEntry as Client } from "../api/schema.ts";
import {
  formatBytes,
  formatDateTime,
  formatDuration,
  formatNumber,
  formatRelativeTime,
  pluralize,
} from "../ui/format.ts";
import { Notice } from "../ui/components.tsx";
import { describeProblem, describeState } from "./state.ts";

export function ServerStatus({ client }: { client: Client }) {
  const problem = describeProblem(client);
  const properties: [string, string | null][] = [
    ["Since", `${formatDateTime(client.since)} (${formatRelativeTime(client.since)})`],
    ["Server", describeVersion(client)],
    ["Calls", client.figures.calls === 0 ? null : describeCalls(client)],
    ["Processes", describeProcesses(client)],
    ["Also offers", describeOtherFeatures(client)],
    ["Instructions", client.instructions],
  ];
  return (
    <section className="section">
      {problem !== null && (
        <Notice tone={describeState(client.state).tone === "bad" ? "bad" : "warn"}>{problem}</Notice>
      )}
      <dl className="properties">
        {properties.map(
          ([name, value]) =>
            value !== null && (
              <Fragment key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </Fragment>
            ),
        )}
      </dl>
      <Problems client={client} />
    </section>
  );
}

/** Problems of the server's definitions and tool lists. What was repaired needs no attention. */
function Problems({ client: { problems } }: { client: Client }) {
  const repaired = problems.filter(({ outcome }) => outcome === "repaired");
  const others = problems.filter(({ outcome }) => outcome !== "repaired");
  return (
    <>
      {others.map((problem, index) => (
        <Notice key={index} tone="warn">
          {problem.kind === "list"
            ? problem.reason
            : `Skipped ${problem.kind} ${problem.item}: ${problem.reason}`}
        </Notice>
      ))}
      {repaired.length > 0 && (
        <details>
          <summary>Malformed definitions were repaired</summary>
          <ul>
            {repaired.map(({ kind, item, reason }, index) => (
              <li key={index}>
                {kind} <code>{item}</code>: {reason}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function describeVersion({ server_info, protocol_version }: Client): string | null {
  if (protocol_version === null) {
    return null;
  }
  return [server_info?.name, server_info?.version, `(protocol ${protocol_version})`]
    .filter(Boolean)
    .join(" ");
}

function describeCalls({ figures, in_flight }: Client): string {
  const parts = [
    formatNumber(figures.calls),
    pluralize(figures.errors, "error"),
    `median ${formatDuration(figures.p50_ms)}`,
    in_flight > 0 ? `${formatNumber(in_flight)} in progress` : null,
  ];
  return parts.filter((part) => part !== null).join(", ");
}

/** Describes what the processes of a server use, as far as that is known. */
function describeProcesses({ process_usage: usage }: Client): string | null {
  if (usage === null) {
    return null;
  }
  const { processes, memory_bytes, cpu_percent, open_files, restarts, memory_limit_exceeded } = usage;
  // A stopped server uses nothing, which its state already says.
  const running = processes !== 0;
  const parts = [
    running && processes !== null ? formatNumber(processes) : null,
    running && memory_bytes !== null ? `${formatBytes(memory_bytes)} of memory` : null,
    running && cpu_percent !== null ? `${cpu_percent.toFixed(1)} % CPU` : null,
    running && open_files !== null ? pluralize(open_files, "open file") : null,
    restarts > 0 ? pluralize(restarts, "restart") : null,
    memory_limit_exceeded > 0 ? `memory limit exceeded ${pluralize(memory_limit_exceeded, "time")}` : null,
  ];
  return parts.filter((part) => part !== null).join(", ") || null;
}

function describeOtherFeatures({ resources, prompts }: Client): string | null {
  const parts = [
    resources.length > 0 ? pluralize(resources.length, "resource") : null,
    prompts.length > 0 ? pluralize(prompts.length, "prompt") : null,
  ];
  return parts.filter((part) => part !== null).join(", ") || null;
}
