/** Agent runs, newest first. */

import { useEffect, useState } from "react";

import { useReloadOn } from "../api/hooks.ts";
import { buildQuery, useList } from "../api/list.ts";
import type { RunView as Run } from "../api/schema.ts";
import { navigate } from "../route.ts";
import { formatDateTime, formatDuration, formatNumber, formatRelativeTime, formatUsd } from "../ui/format.ts";
import { ShowMore } from "../ui/show-more.tsx";
import { EmptyState, ErrorNotice, Loading, PageHeader, Status, Table, type Tone } from "../ui/components.tsx";
import { RunSheet } from "./sheet.tsx";

export const RUN_TONES: Record<Run["state"], Tone> = {
  running: "info",
  done: "good",
  waiting: "warn",
  failed: "bad",
  cancelled: "neutral",
  interrupted: "warn",
};

const STATES = Object.keys(RUN_TONES) as Run["state"][];
const POLL_INTERVAL_MS = 2000;

export function RunsView({ item }: { item: string | null }) {
  const [state, setState] = useState("");
  const list = useList<Run>(`/api/runs${buildQuery({ state })}`, "runs");
  const { items, error, reload } = list;
  useReloadOn(["call"], reload);
  const hasRunning = items?.some((run) => run.state === "running") ?? false;
  useEffect(() => {
    // A run that ends without a tool call sends no event.
    const timer = hasRunning ? setInterval(reload, POLL_INTERVAL_MS) : undefined;
    return () => clearInterval(timer);
  }, [hasRunning, reload]);
  return (
    <>
      <PageHeader title="Runs" description="Model requests in which the gateway executed tools." />
      <div className="toolbar">
        <select aria-label="State" value={state} onChange={(event) => setState(event.target.value)}>
          <option value="">All states</option>
          {STATES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </div>
      <ErrorNotice error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && (
        <EmptyState title={state === "" ? "No runs yet" : `No ${state} runs`}>
          <p>
            A request to <code>/v1/chat/completions</code>, <code>/v1/responses</code> or{" "}
            <code>/v1/messages</code> becomes a run if any of its tools is automatically executed.
          </p>
        </EmptyState>
      )}
      {items !== null && items.length > 0 && <RunTable runs={items} />}
      <ShowMore list={list} />
      {item !== null && <RunSheet key={item} id={item} onClose={() => navigate("runs")} onChanged={reload} />}
    </>
  );
}

function RunTable({ runs }: { runs: Run[] }) {
  return (
    <Table
      columns={[
        "Started",
        "State",
        "Model",
        "Caller",
        { number: "Iterations" },
        { number: "Tokens" },
        { number: "Cost" },
        { number: "Duration" },
      ]}
    >
      {runs.map((run) => (
        <RunRow key={run.id} run={run} />
      ))}
    </Table>
  );
}

function RunRow({ run }: { run: Run }) {
  const duration = run.ended_at === null ? null : Date.parse(run.ended_at) - Date.parse(run.started_at);
  return (
    <tr className="clickable" onClick={() => navigate("runs", run.id)}>
      <td>
        <button type="button" className="name" title={formatDateTime(run.started_at)}>
          {formatRelativeTime(run.started_at)}
        </button>
      </td>
      <td>
        <Status tone={RUN_TONES[run.state]}>{run.state}</Status>
        {run.stop_reason !== null && run.stop_reason !== "done" && (
          <div className="faint">{run.stop_reason}</div>
        )}
      </td>
      <td className="mono">{run.model}</td>
      <td>{run.caller ?? "–"}</td>
      <td className="number" data-label="Iterations">
        {formatNumber(run.iterations)}
      </td>
      <td className="number" data-label="Tokens">
        {formatNumber(run.input_tokens + run.output_tokens)}
      </td>
      <td className="number" data-label="Cost">
        {formatUsd(run.cost_usd)}
      </td>
      <td className="number" data-label="Duration">
        {formatDuration(duration)}
      </td>
    </tr>
  );
}
