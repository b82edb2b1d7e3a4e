/** What agents did, the newest first. */

import { useEffect, useState } from "react";

import { useReloadOn } from "../api/hooks.ts";
import { query, useList } from "../api/list.ts";
import type { Run } from "../api/types.ts";
import { go } from "../route.ts";
import { clock, count, ms, usd, when } from "../ui/format.ts";
import { More } from "../ui/more.tsx";
import { Empty, Failure, Head, Loading, Status, Table, type Tone } from "../ui/parts.tsx";
import { RunSheet } from "./sheet.tsx";

export const RUN_TONES: Record<Run["state"], Tone> = {
  running: "info",
  done: "good",
  waiting: "warn",
  failed: "bad",
  cancelled: "quiet",
  interrupted: "warn",
};

const STATES = Object.keys(RUN_TONES) as Run["state"][];
const LOOK_AGAIN = 2000;

export function RunsView({ item }: { item: string | null }) {
  const [state, setState] = useState("");
  const list = useList<Run>(`/api/runs${query({ state })}`, "runs");
  const { items, error, reload } = list;
  useReloadOn(["call"], reload);
  const busy = items?.some((run) => run.state === "running") ?? false;
  useEffect(() => {
    // A run that ends without a call leaves no event.
    const timer = busy ? setInterval(reload, LOOK_AGAIN) : undefined;
    return () => clearInterval(timer);
  }, [busy, reload]);
  return (
    <>
      <Head title="Runs" says="Requests to models in which the gateway ran tools, turn after turn." />
      <div className="bar">
        <select aria-label="State" value={state} onChange={(event) => setState(event.target.value)}>
          <option value="">All states</option>
          {STATES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </div>
      <Failure error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && (
        <Empty title={state === "" ? "No runs yet" : `No run is ${state}`}>
          <p>
            A request to <code>/v1/chat/completions</code>, <code>/v1/responses</code> or{" "}
            <code>/v1/messages</code> becomes a run if some of its tools run unasked.
          </p>
        </Empty>
      )}
      {items !== null && items.length > 0 && <RunTable runs={items} />}
      <More list={list} />
      {item !== null && <RunSheet key={item} id={item} onClose={() => go("runs")} onChanged={reload} />}
    </>
  );
}

function RunTable({ runs }: { runs: Run[] }) {
  return (
    <Table
      heads={[
        "Started",
        "State",
        "Model",
        "Caller",
        { number: "Turns" },
        { number: "Tokens" },
        { number: "Cost" },
        { number: "Took" },
      ]}
    >
      {runs.map((run) => (
        <RunRow key={run.id} run={run} />
      ))}
    </Table>
  );
}

function RunRow({ run }: { run: Run }) {
  const took = run.ended_at === null ? null : Date.parse(run.ended_at) - Date.parse(run.started_at);
  return (
    <tr className="opens" onClick={() => go("runs", run.id)}>
      <td>
        <button type="button" className="name" title={clock(run.started_at)}>
          {when(run.started_at)}
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
      <td className="number" data-label="Turns">
        {count(run.iterations)}
      </td>
      <td className="number" data-label="Tokens">
        {count(run.input_tokens + run.output_tokens)}
      </td>
      <td className="number" data-label="Cost">
        {usd(run.cost_usd)}
      </td>
      <td className="number" data-label="Took">
        {ms(took)}
      </td>
    </tr>
  );
}
