/** Every attempt to call a tool, the newest first. The filter is in the address. */

import { useState } from "react";

import { useReloadOn } from "../api/hooks.ts";
import { query, useList, useSettled } from "../api/list.ts";
import type { CallRecord } from "../api/types.ts";
import { replace } from "../route.ts";
import { clock, ms, when } from "../ui/format.ts";
import { More } from "../ui/more.tsx";
import { Badge, Empty, Failure, Head, Loading, Table } from "../ui/parts.tsx";
import { OUTCOMES, toneOf } from "./outcomes.ts";
import { RecordSheet } from "./sheet.tsx";

const FILTERS = ["server", "tool", "caller", "outcome", "request_id", "run_id"] as const;
type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

export function ActivityView({ item }: { item: string | null }) {
  const filter = filterOf(item);
  const path = useSettled(`/api/audit${query({ ...filter })}`);
  const list = useList<CallRecord>(path, "records");
  useReloadOn(["call"], list.reload);
  const [open, setOpen] = useState<CallRecord | null>(null);
  const { items, error } = list;
  return (
    <>
      <Head title="Activity" says="Every attempt to call a tool, also those that were refused." />
      <FilterBar filter={filter} />
      <Failure error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && (
        <Empty title={item === null ? "Nothing was called yet" : "No call fits the filter"} />
      )}
      {items !== null && items.length > 0 && <RecordTable records={items} onOpen={setOpen} />}
      <More list={list} />
      {open !== null && <RecordSheet record={open} onClose={() => setOpen(null)} />}
    </>
  );
}

function filterOf(item: string | null): Filter {
  const given = new URLSearchParams(item ?? "");
  return Object.fromEntries(FILTERS.flatMap((name) => (given.get(name) ? [[name, given.get(name)]] : [])));
}

function FilterBar({ filter }: { filter: Filter }) {
  const set = (change: Filter) => replace("activity", query({ ...filter, ...change }).slice(1));
  return (
    <div className="bar">
      {(["server", "tool", "caller"] as const).map((name) => (
        <input
          key={name}
          type="search"
          aria-label={name}
          placeholder={name}
          value={filter[name] ?? ""}
          spellCheck={false}
          onChange={(event) => set({ [name]: event.target.value })}
        />
      ))}
      <select
        aria-label="Outcome"
        value={filter.outcome ?? ""}
        onChange={(event) => set({ outcome: event.target.value })}
      >
        <option value="">All outcomes</option>
        {OUTCOMES.map((outcome) => (
          <option key={outcome}>{outcome}</option>
        ))}
      </select>
      {(["run_id", "request_id"] as const).map(
        (name) =>
          filter[name] !== undefined && (
            <button key={name} type="button" onClick={() => set({ [name]: "" })}>
              {name === "run_id" ? "of one run" : "of one request"} ✕
            </button>
          ),
      )}
    </div>
  );
}

function RecordTable({ records, onOpen }: { records: CallRecord[]; onOpen: (record: CallRecord) => void }) {
  return (
    <Table heads={["Tool", "Outcome", "Caller", "Origin", "When", { number: "Took" }]}>
      {records.map((record) => (
        <tr key={record.id} className="opens" onClick={() => onOpen(record)}>
          <td className="wide">
            <button type="button" className="name mono">
              {record.server === null ? record.name : `${record.server}.${record.tool}`}
            </button>
            {record.error !== null && <div className="faint two-lines">{record.error}</div>}
          </td>
          <td>
            <Badge tone={toneOf(record.outcome)}>{record.outcome}</Badge>
          </td>
          <td>{record.caller ?? "–"}</td>
          <td>{record.origin}</td>
          <td title={clock(record.started_at)}>{when(record.started_at)}</td>
          <td className="number">{ms(record.duration_ms)}</td>
        </tr>
      ))}
    </Table>
  );
}
