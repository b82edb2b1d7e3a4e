/** The audit log: every tool call, newest first. The filter is part of the route. */

import { useState } from "react";

import { useReloadOn } from "../api/hooks.ts";
import { buildQuery, useDebounced, useList } from "../api/list.ts";
import type { RecordView as CallRecord } from "../api/schema.ts";
import { replaceRoute } from "../route.ts";
import { formatDateTime, formatDuration, formatRelativeTime } from "../ui/format.ts";
import { ShowMore } from "../ui/show-more.tsx";
import { Badge, EmptyState, ErrorNotice, Loading, PageHeader, Table } from "../ui/components.tsx";
import { OUTCOMES, outcomeTone } from "./outcomes.ts";
import { RecordSheet } from "./sheet.tsx";

const FILTERS = ["server", "tool", "caller", "outcome", "request_id", "run_id"] as const;
type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

const TEXT_FILTERS = [
  { name: "server", label: "Server" },
  { name: "tool", label: "Tool" },
  { name: "caller", label: "Caller" },
] as const;

/** Filters set by links from other views. The page only offers to clear them. */
const ID_FILTERS = [
  { name: "run_id", label: "One run" },
  { name: "request_id", label: "One request" },
] as const;

export function ActivityView({ item }: { item: string | null }) {
  const filter = parseFilter(item);
  const path = useDebounced(`/api/audit${buildQuery({ ...filter })}`);
  const list = useList<CallRecord>(path, "records");
  useReloadOn(["call"], list.reload);
  const [open, setOpen] = useState<CallRecord | null>(null);
  const { items, error } = list;
  return (
    <>
      <PageHeader title="Activity" description="Every tool call, including rejected ones." />
      <FilterBar filter={filter} />
      <ErrorNotice error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && (
        <EmptyState title={item === null ? "No calls yet" : "No calls match the filter"} />
      )}
      {items !== null && items.length > 0 && <RecordTable records={items} onOpen={setOpen} />}
      <ShowMore list={list} />
      {open !== null && <RecordSheet record={open} onClose={() => setOpen(null)} />}
    </>
  );
}

function parseFilter(item: string | null): Filter {
  const params = new URLSearchParams(item ?? "");
  return Object.fromEntries(FILTERS.flatMap((name) => (params.get(name) ? [[name, params.get(name)]] : [])));
}

function FilterBar({ filter }: { filter: Filter }) {
  const update = (change: Filter) => replaceRoute("activity", buildQuery({ ...filter, ...change }).slice(1));
  return (
    <div className="toolbar">
      {TEXT_FILTERS.map(({ name, label }) => (
        <input
          key={name}
          type="search"
          aria-label={label}
          placeholder={label}
          value={filter[name] ?? ""}
          spellCheck={false}
          onChange={(event) => update({ [name]: event.target.value })}
        />
      ))}
      <select
        aria-label="Outcome"
        value={filter.outcome ?? ""}
        onChange={(event) => update({ outcome: event.target.value })}
      >
        <option value="">All outcomes</option>
        {OUTCOMES.map((outcome) => (
          <option key={outcome}>{outcome}</option>
        ))}
      </select>
      {ID_FILTERS.map(
        ({ name, label }) =>
          filter[name] !== undefined && (
            <button key={name} type="button" onClick={() => update({ [name]: "" })}>
              {label} ✕
            </button>
          ),
      )}
    </div>
  );
}

function RecordTable({ records, onOpen }: { records: CallRecord[]; onOpen: (record: CallRecord) => void }) {
  return (
    <Table columns={["Tool", "Outcome", "Caller", "Origin", "Time", { number: "Duration" }]}>
      {records.map((record) => (
        <tr key={record.id} className="clickable" onClick={() => onOpen(record)}>
          <td className="wide">
            <button type="button" className="name mono">
              {record.server === null ? record.name : `${record.server}.${record.tool}`}
            </button>
            {record.error !== null && <div className="faint two-lines">{record.error}</div>}
          </td>
          <td>
            <Badge tone={outcomeTone(record.outcome)}>{record.outcome}</Badge>
          </td>
          <td>{record.caller ?? "–"}</td>
          <td>{record.origin}</td>
          <td title={formatDateTime(record.started_at)}>{formatRelativeTime(record.started_at)}</td>
          <td className="number">{formatDuration(record.duration_ms)}</td>
        </tr>
      ))}
    </Table>
  );
}
