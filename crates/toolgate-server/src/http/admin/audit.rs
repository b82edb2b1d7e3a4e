//! `/api/audit`: the audit trail of tool calls, in pages or exported as JSON Lines or CSV.

use std::time::SystemTime;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate::Gateway;
use toolgate::audit::{AuditKind, AuditQuery, AuditRecord};
use toolgate::store::{StoreError, unix_millis};
use utoipa::{IntoParams, ToSchema};

use super::format_time;
use super::page::PageParams;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::ApiQuery;
use crate::http::schema::{ScriptSummary, VerdictSchema};

/// Records that an export reads from the store at a time.
const EXPORT_BATCH_RECORDS: usize = 500;

/// An attempt to call a tool, or another event.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RecordView {
    id: String,
    /// `tool`, `resource`, `prompt`, `completion`, `approval`, `auth` or `admin`.
    kind: &'static str,
    request_id: String,
    #[schema(required)]
    parent_id: Option<String>,
    #[schema(required)]
    run_id: Option<String>,
    /// Name of the caller's key; null for a caller without a key.
    #[schema(required)]
    caller: Option<String>,
    origin: String,
    /// Tool name as sent by the caller.
    name: String,
    #[schema(required)]
    server: Option<String>,
    #[schema(required)]
    tool: Option<String>,
    /// Server that was called originally, if a fallback executed the call.
    #[schema(required)]
    instead_of: Option<String>,
    #[schema(value_type = Option<Object>, required)]
    arguments: Option<Box<RawValue>>,
    #[schema(value_type = Option<VerdictSchema>, required)]
    verdict: Option<String>,
    /// Config key that determined the verdict.
    #[schema(required)]
    rule: Option<String>,
    #[schema(required)]
    approval: Option<String>,
    /// Findings of the scanner.
    warnings: Vec<String>,
    /// Of a call: `open`, `ok`, `tool_error`, `unknown`, `bad_arguments`, `bad_filter`, `denied`, `ask`, `manual`,
    /// `limited`, `away`, `busy`, `no_worker`, `timeout`, `server`, `cancelled`, `panicked`, `unauthorized`,
    /// `unrecorded` or `interrupted`. Of an approval: `approved`, `denied` or `expired`. Of authentication:
    /// `signed_in` or `unauthorized`. Of a change: `ok`.
    outcome: String,
    #[schema(required)]
    error: Option<String>,
    #[schema(value_type = Option<Object>, required)]
    result: Option<Box<RawValue>>,
    bytes_in: i64,
    bytes_out: i64,
    started_at: String,
    #[schema(required)]
    duration_ms: Option<f64>,
    cost_usd: f64,
    /// Whether the result came from the cache.
    cached: bool,
    /// Set if the call ran a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ScriptSummary>, nullable = false)]
    script: Option<serde_json::Value>,
    /// Number of like events that the record stands for; more than one for refusals that came fast.
    occurrences: i64,
    /// More about the event: who decided and why; what was before and after a change; which tool is
    /// hidden from the caller, and by which gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    detail: Option<serde_json::Value>,
}

/// State of the audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditStatus {
    /// Approximate size of all records.
    bytes: u64,
    /// Maximum size of all records; null for no limit.
    #[schema(required)]
    max_bytes: Option<u64>,
    /// Days for which records are kept; null if they are kept forever.
    #[schema(required)]
    retention_days: Option<u64>,
    /// Time of the oldest records.
    #[schema(required)]
    oldest_at: Option<String>,
    /// Number of the last entry in the chain.
    #[schema(required)]
    last_entry: Option<i64>,
    /// Time of the last seal.
    #[schema(required)]
    sealed_at: Option<String>,
    /// Why the store cannot be written, if it cannot. Changes and calls are refused meanwhile.
    #[schema(required)]
    store_problem: Option<String>,
    /// Why the second sink does not accept records, if it does not.
    #[schema(required)]
    sink_problem: Option<String>,
}

/// Get the state of the audit trail.
#[utoipa::path(get, path = "/api/audit/status", tag = "api", responses((status = 200, body = AuditStatus)))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<AuditStatus>, ApiError> {
    let audit = app.gateway().audit();
    let usage = audit.usage().await.map_err(ChangeError::Store)?;
    let snapshot = app.configuration().snapshot();
    let settings = &snapshot.config.audit;
    let days = |age: std::time::Duration| age.as_secs() / (24 * 3600);
    let text = |problem: Option<std::sync::Arc<str>>| problem.map(|problem| problem.to_string());
    Ok(Json(AuditStatus {
        bytes: usage.bytes,
        max_bytes: settings.max_size,
        retention_days: settings.retention.map(days),
        oldest_at: usage.oldest_at.map(format_time),
        last_entry: usage.last_entry,
        sealed_at: usage.sealed_at.map(format_time),
        store_problem: text(app.gateway().store().write_problem()),
        sink_problem: text(audit.sink_problem()),
    }))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordPage {
    records: Vec<RecordView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditFilter {
    /// Kind of record: `tool` (default), `resource`, `prompt`, `completion`, `approval`, `auth`, `admin` or `all`.
    kind: Option<String>,
    server: Option<String>,
    /// Tool name as the server defines it.
    tool: Option<String>,
    /// Name of a caller key.
    caller: Option<String>,
    outcome: Option<String>,
    request_id: Option<String>,
    run_id: Option<String>,
    /// Only calls that started at or after this time, such as `2026-01-31T12:00:00Z`.
    since: Option<String>,
    /// Only calls that started before this time.
    until: Option<String>,
    /// `json` (default) returns a page; `jsonl` and `csv` export all matching records; `chain` exports the
    /// whole trail with its hash chain, for `toolgate audit verify --file`, whatever the filters.
    format: Option<String>,
    /// Maximum number of records to return, up to 1000. Defaults to 100 for `json`, and to all for exports.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum ExportFormat {
    Jsonl,
    Csv,
}

/// List or export audit records, newest first.
#[utoipa::path(get, path = "/api/audit", tag = "api", params(AuditFilter),
    responses((status = 200, body = RecordPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(filter): ApiQuery<AuditFilter>,
) -> Result<Response, ApiError> {
    let query = filter.to_query()?;
    let export = match filter.format.as_deref() {
        None | Some("json") => {
            let page = app.gateway().audit().query(&query).await;
            let page = page.map_err(ChangeError::Store)?;
            let last = page.records.last().filter(|_| page.more);
            return Ok(Json(RecordPage {
                next_cursor: last.map(|record| record.id.clone()),
                records: page.records.into_iter().map(RecordView::new).collect(),
            })
            .into_response());
        }
        Some("jsonl") => ExportFormat::Jsonl,
        Some("csv") => ExportFormat::Csv,
        Some("chain") => return export_chain(&app).await,
        Some(_) => {
            return Err(ApiError::bad_request(
                "`format` must be `json`, `jsonl`, `csv` or `chain`",
            ));
        }
    };
    let (content_type, disposition) = match export {
        ExportFormat::Jsonl => ("application/jsonl", "attachment; filename=\"audit.jsonl\""),
        ExportFormat::Csv => (
            "text/csv; charset=utf-8",
            "attachment; filename=\"audit.csv\"",
        ),
    };
    let max_records = filter.limit.unwrap_or(usize::MAX);
    let body = Body::from_stream(export_records(
        app.gateway().clone(),
        query,
        export,
        max_records,
    ));
    Ok((
        [
            (CONTENT_TYPE, content_type),
            (CONTENT_DISPOSITION, disposition),
        ],
        body,
    )
        .into_response())
}

/// Exports the trail with its hash chain.
async fn export_chain(app: &App) -> Result<Response, ApiError> {
    let reader = app.gateway().audit().export().await;
    let reader = reader.map_err(ChangeError::Store)?;
    let lines = stream::try_unfold(reader, |mut reader| async move {
        let lines = reader.next_lines().await?;
        let text = lines.map(|lines| {
            lines
                .into_iter()
                .map(|line| line + "\n")
                .collect::<String>()
        });
        Ok::<_, StoreError>(text.map(|text| (text, reader)))
    });
    let headers = [
        (CONTENT_TYPE, "application/jsonl"),
        (
            CONTENT_DISPOSITION,
            "attachment; filename=\"audit-chain.jsonl\"",
        ),
    ];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Streams all records that match a query in batches, so that memory use stays bounded.
fn export_records(
    gateway: Gateway,
    query: AuditQuery,
    export: ExportFormat,
    max_records: usize,
) -> impl Stream<Item = Result<String, StoreError>> {
    let first = AuditQuery {
        limit: EXPORT_BATCH_RECORDS.min(max_records),
        ..query
    };
    let header = match export {
        ExportFormat::Csv => format!("{}\n", CSV_COLUMNS.join(",")),
        ExportFormat::Jsonl => String::new(),
    };
    stream::try_unfold(
        (Some(first), header, max_records),
        move |(query, mut text, remaining)| {
            let gateway = gateway.clone();
            async move {
                let Some(query) = query else { return Ok(None) };
                let page = gateway.audit().query(&query).await?;
                let remaining = remaining.saturating_sub(page.records.len());
                let next = page.records.last().filter(|_| page.more && remaining > 0);
                let next = next.map(|record| AuditQuery {
                    before: Some(record.id.clone()),
                    limit: EXPORT_BATCH_RECORDS.min(remaining),
                    ..query.clone()
                });
                for record in page.records {
                    text.push_str(&RecordView::new(record).export_line(export));
                }
                Ok(Some((text, (next, String::new(), remaining))))
            }
        },
    )
}

impl AuditFilter {
    fn to_query(&self) -> Result<AuditQuery, ApiError> {
        let parse_time = |name: &str, text: &Option<String>| -> Result<Option<i64>, ApiError> {
            let Some(text) = text else { return Ok(None) };
            let time: SystemTime = humantime::parse_rfc3339_weak(text).map_err(|_| {
                ApiError::bad_request(format!(
                    "`{name}` is not a valid time; use a format such as `2026-01-31T12:00:00Z`"
                ))
            })?;
            Ok(Some(unix_millis(time)))
        };
        let kind = match self.kind.as_deref() {
            None => Some(AuditKind::Tool),
            Some("all") => None,
            Some(name) => Some(AuditKind::from_name(name).ok_or_else(|| {
                let names = AuditKind::ALL.map(AuditKind::as_str).join("`, `");
                ApiError::bad_request(format!("`kind` must be `{names}` or `all`"))
            })?),
        };
        Ok(AuditQuery {
            kind,
            server: self.server.clone(),
            tool: self.tool.clone(),
            caller: self.caller.clone(),
            outcome: self.outcome.clone(),
            request_id: self.request_id.clone(),
            run_id: self.run_id.clone(),
            since: parse_time("since", &self.since)?,
            until: parse_time("until", &self.until)?,
            before: self.cursor.clone(),
            limit: PageParams::page_size(self.limit)?,
        })
    }
}

const CSV_COLUMNS: [&str; 20] = [
    "id",
    "started_at",
    "request_id",
    "run_id",
    "caller",
    "origin",
    "name",
    "server",
    "tool",
    "verdict",
    "rule",
    "approval",
    "outcome",
    "error",
    "arguments",
    "duration_ms",
    "cost_usd",
    "kind",
    "occurrences",
    "detail",
];

impl RecordView {
    #[allow(
        clippy::cast_precision_loss,
        reason = "durations and costs are displayed, not summed"
    )]
    pub(crate) fn new(record: AuditRecord) -> Self {
        Self {
            id: record.id,
            request_id: record.request_id,
            parent_id: record.parent_id,
            run_id: record.run_id,
            caller: record.caller,
            origin: record.origin,
            name: record.name,
            server: record.server,
            tool: record.tool,
            instead_of: record.instead_of,
            arguments: record.arguments,
            verdict: record.verdict,
            rule: record.rule,
            approval: record.approval,
            warnings: record.warnings,
            outcome: record.outcome,
            error: record.error,
            result: record.result,
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            started_at: format_time(record.started_at),
            duration_ms: record.duration_us.map(|micros| micros as f64 / 1e3),
            cost_usd: record.cost_micro_usd as f64 / 1e6,
            cached: record.cached,
            script: record.script.clone(),
            kind: record.kind.as_str(),
            occurrences: record.occurrences,
            detail: record.detail,
        }
    }

    fn export_line(&self, export: ExportFormat) -> String {
        match export {
            ExportFormat::Jsonl => {
                // Raw arguments and results may contain line breaks, but only between JSON tokens, so
                // replacing them does not change the values.
                match serde_json::to_string(self) {
                    Ok(json) => format!("{}\n", json.replace(['\n', '\r'], " ")),
                    Err(error) => {
                        tracing::error!(record = self.id, %error, "failed to export audit record");
                        String::new()
                    }
                }
            }
            ExportFormat::Csv => format!(
                "{}\n",
                self.csv_cells().map(|cell| csv_cell(&cell)).join(",")
            ),
        }
    }

    fn csv_cells(&self) -> [String; 20] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let arguments = self.arguments.as_ref().map(|raw| raw.get().to_owned());
        let duration = self.duration_ms.map(|ms| ms.to_string());
        let detail = self.detail.as_ref().map(ToString::to_string);
        [
            self.id.clone(),
            self.started_at.clone(),
            self.request_id.clone(),
            text(&self.run_id),
            text(&self.caller),
            self.origin.clone(),
            self.name.clone(),
            text(&self.server),
            text(&self.tool),
            text(&self.verdict),
            text(&self.rule),
            text(&self.approval),
            self.outcome.clone(),
            text(&self.error),
            arguments.unwrap_or_default(),
            duration.unwrap_or_default(),
            self.cost_usd.to_string(),
            self.kind.to_owned(),
            self.occurrences.to_string(),
            detail.unwrap_or_default(),
        ]
    }
}

/// Quotes a CSV cell. A leading apostrophe keeps spreadsheets from evaluating the cell as a formula.
fn csv_cell(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = if is_formula {
        format!("'{cell}")
    } else {
        cell.to_owned()
    };
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}
