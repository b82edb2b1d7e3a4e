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
use toolgate::audit::{AuditQuery, AuditRecord};
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

/// An attempt to call a tool.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RecordView {
    id: String,
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
    /// `open`, `ok`, `tool_error`, `unknown`, `bad_arguments`, `bad_filter`, `denied`, `ask`, `limited`, `away`,
    /// `busy`, `timeout`, `server`, `cancelled`, `panicked`, `unauthorized`, `unrecorded` or `interrupted`.
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
    /// `json` (default) returns a page; `jsonl` and `csv` export all matching records.
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
        Some(_) => {
            return Err(ApiError::bad_request(
                "`format` must be `json`, `jsonl` or `csv`",
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
        Ok(AuditQuery {
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

const CSV_COLUMNS: [&str; 17] = [
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

    fn csv_cells(&self) -> [String; 17] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let arguments = self.arguments.as_ref().map(|raw| raw.get().to_owned());
        let duration = self.duration_ms.map(|ms| ms.to_string());
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
