/** The audit log: tool calls and other events, newest first. The filter is part of the route. */

import { useState } from "react";

import { usePolling, useReloadOn } from "../api/hooks.ts";
import { buildQuery, useDebounced, useList } from "../api/list.ts";
import type { RecordView as AuditRecord } from "../api/schema.ts";
import { replaceRoute } from "../route.ts";
import { formatDateTime, formatDuration, formatNumber, formatRelativeTime } from "../ui/format.ts";
import { ShowMore } from "../ui/show-more.tsx";
import { Badge, EmptyState, ErrorNotice, Loading, PageHeader, Table } from "../ui/components.tsx";
import { isObject } from "./record-detail.ts";
import { DEFAULT_KIND, KINDS, kindOf, outcomeTone, parseKind, recordTitle, type KindName } from "./kinds.ts";
import { RecordSheet } from "./sheet.tsx";
import { TrailStatus } from "./trail-status.tsx";

const FILTERS = ["kind", "server", "tool", "caller", "outcome", "request_id", "run_id"] as const;
type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

const TEXT_FILTERS = ["server", "tool", "caller"] as const;
const TEXT_FILTER_LABELS = { server: "Server", tool: "Tool" } as const;

/** Filters set by links from other views. The page only offers to clear them. */
const ID_FILTERS = [
  { name: "run_id", label: "One run" },
  { name: "request_id", label: "One request" },
] as const;

/** Changes send no events. */
const CHANGE_POLL_INTERVAL_MS = 5000;

export function ActivityView({ item }: { item: string | null }) {
  const filter = parseFilter(item);
  const path = useDebounced(`/api/audit${buildQuery({ ...filter })}`);
  const list = useList<AuditRecord>(path, "records");
  const kind = parseKind(filter.kind);
  useReloadOn(["call", "approval"], list.reload);
  // The records on the page are those of the request, which waits for the filter to stop changing.
  const listedKind = useDebounced(kind);
  usePolling(kind === "admin" || kind === "all" ? CHANGE_POLL_INTERVAL_MS : null, list.reload);
  const [open, setOpen] = useState<AuditRecord | null>(null);
  const { items, error } = list;
  return (
    <>
      <PageHeader
        title="Activity"
        description="Every call, including rejected ones, and every decision, sign-in and change."
      />
      <TrailStatus />
      <FilterBar filter={filter} kind={kind} />
      <ErrorNotice error={error} />
      {items === null && error === null && <Loading />}
      {items !== null && items.length === 0 && (
        <EmptyState title={item === null ? "No calls yet" : "Nothing matches the filter"} />
      )}
      {items !== null && items.length > 0 && (
        <RecordTable records={items} kind={listedKind} onOpen={setOpen} />
      )}
      <ShowMore list={list} />
      {open !== null && <RecordSheet record={open} onClose={() => setOpen(null)} />}
    </>
  );
}

function parseFilter(item: string | null): Filter {
  const params = new URLSearchParams(item ?? "");
  return Object.fromEntries(FILTERS.flatMap((name) => (params.get(name) ? [[name, params.get(name)]] : [])));
}

function FilterBar({ filter, kind }: { filter: Filter; kind: KindName }) {
  const update = (change: Filter) => replaceRoute("activity", buildQuery({ ...filter, ...change }).slice(1));
  const { outcomes, hasServer, caller } = kindOf(kind);
  const labels = { ...TEXT_FILTER_LABELS, caller };
  return (
    <div className="toolbar">
      <select
        aria-label="Kind"
        value={kind}
        onChange={(event) => update(changeKind(parseKind(event.target.value)))}
      >
        {Object.entries(KINDS).map(([name, { label }]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </select>
      {TEXT_FILTERS.filter((name) => hasServer || name === "caller").map((name) => (
        <input
          key={name}
          type="search"
          aria-label={labels[name]}
          placeholder={labels[name]}
          value={filter[name] ?? ""}
          spellCheck={false}
          onChange={(event) => update({ [name]: event.target.value })}
        />
      ))}
      {outcomes.length > 0 && (
        <select
          aria-label="Outcome"
          value={filter.outcome ?? ""}
          onChange={(event) => update({ outcome: event.target.value })}
        >
          <option value="">All outcomes</option>
          {outcomes.map((outcome) => (
            <option key={outcome}>{outcome}</option>
          ))}
        </select>
      )}
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

/** Selects another kind and clears the filters that its records may not have. */
function changeKind(kind: KindName): Filter {
  const cleared = kindOf(kind).hasServer ? {} : { server: "", tool: "" };
  return { kind: kind === DEFAULT_KIND ? "" : kind, outcome: "", ...cleared };
}

interface RecordTableProps {
  records: AuditRecord[];
  kind: KindName;
  onOpen: (record: AuditRecord) => void;
}

function RecordTable({ records, kind, onOpen }: RecordTableProps) {
  const { singular, caller } = kindOf(kind);
  return (
    <Table columns={[singular, "Outcome", caller, "Origin", "Time", { number: "Duration" }]}>
      {records.map((record) => (
        <tr key={record.id} className="clickable" onClick={() => onOpen(record)}>
          <td className="wide">
            <button type="button" className="name mono">
              {recordTitle(record)}
            </button>
            {kind === "all" && <span className="soft"> {kindOf(parseKind(record.kind)).singular}</span>}
            <RecordNote record={record} />
          </td>
          <td>
            <Badge tone={outcomeTone(record.outcome)}>{record.outcome}</Badge>
            {record.occurrences > 1 && (
              <span className="soft" title={`${formatNumber(record.occurrences)} like events`}>
                {` ×${formatNumber(record.occurrences)}`}
              </span>
            )}
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

/** The error of a record, or what a change was made to. */
function RecordNote({ record: { error, detail } }: { record: AuditRecord }) {
  const target = isObject(detail) ? detail["target"] : null;
  const note = error ?? (typeof target === "string" && target !== "" ? target : null);
  return note === null ? null : <div className="faint two-lines">{note}</div>;
}
