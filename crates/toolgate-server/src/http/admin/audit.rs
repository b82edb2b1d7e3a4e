//! `/api/audit`: what was called, by whom, and what came of it.

use std::time::SystemTime;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate::Gateway;
use toolgate::audit::{Query as AuditQuery, Record};
use toolgate::store::{StoreError, millis};
use utoipa::{IntoParams, ToSchema};

use super::page::Page;
use super::time;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// Records that an export reads at once.
const BATCH: usize = 500;

/// One attempt to call a tool.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RecordView {
    id: String,
    request_id: String,
    parent_id: Option<String>,
    run_id: Option<String>,
    /// The name of the caller's key; null for callers who need none.
    caller: Option<String>,
    origin: String,
    /// The tool as the caller spelled it.
    name: String,
    server: Option<String>,
    tool: Option<String>,
    /// The server that was asked for, where a fallback ran.
    instead_of: Option<String>,
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// `allow`, `manual`, `ask` or `deny`.
    verdict: Option<String>,
    /// The config key that decided.
    rule: Option<String>,
    approval: Option<String>,
    /// What the scanner found.
    warnings: Vec<String>,
    /// `open`, `ok`, `tool_error`, `unknown`, `bad_arguments`, `bad_filter`, `denied`, `ask`, `limited`, `away`,
    /// `busy`, `timeout`, `server`, `cancelled`, `panicked`, `unauthorized`, `unrecorded` or `interrupted`.
    outcome: String,
    error: Option<String>,
    #[schema(value_type = Option<Object>)]
    result: Option<Box<RawValue>>,
    bytes_in: i64,
    bytes_out: i64,
    started_at: String,
    duration_ms: Option<f64>,
    cost_usd: f64,
    /// Whether an earlier result was used again.
    cached: bool,
    /// Of a script: `calls` that it made, the `limit` that stopped it, `saved_tokens` a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    script: Option<serde_json::Value>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordPage {
    records: Vec<RecordView>,
    next_cursor: Option<String>,
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    server: Option<String>,
    /// A raw tool name.
    tool: Option<String>,
    /// The name of a key.
    caller: Option<String>,
    outcome: Option<String>,
    request_id: Option<String>,
    run_id: Option<String>,
    /// Only calls that began at this time or later, such as `2026-01-31T12:00:00Z`.
    since: Option<String>,
    /// Only calls that began before this time.
    until: Option<String>,
    /// `json` (default, in pages), or all of them as `jsonl` or `csv`.
    format: Option<String>,
    /// How many to answer with, at most 1000. Default 100 as `json`, all otherwise.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Export {
    Jsonl,
    Csv,
}

/// Records of calls, the newest first.
#[utoipa::path(get, path = "/api/audit", tag = "api", params(Filter),
    responses((status = 200, body = RecordPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(filter) = filter?;
    let query = filter.query()?;
    let export = match filter.format.as_deref() {
        None | Some("json") => {
            let page = app.gateway().audit(&query).await;
            let page = page.map_err(ChangeError::Store)?;
            let last = page.records.last().filter(|_| page.more);
            return Ok(Json(RecordPage {
                next_cursor: last.map(|record| record.id.clone()),
                records: page.records.into_iter().map(RecordView::new).collect(),
            })
            .into_response());
        }
        Some("jsonl") => Export::Jsonl,
        Some("csv") => Export::Csv,
        Some(_) => {
            return Err(ApiError::bad_request(
                "`format` must be `json`, `jsonl` or `csv`",
            ));
        }
    };
    let (kind, file) = match export {
        Export::Jsonl => ("application/jsonl", "attachment; filename=\"audit.jsonl\""),
        Export::Csv => (
            "text/csv; charset=utf-8",
            "attachment; filename=\"audit.csv\"",
        ),
    };
    let most = filter.limit.unwrap_or(usize::MAX);
    let body = Body::from_stream(everything(app.gateway().clone(), query, export, most));
    Ok(([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, file)], body).into_response())
}

/// All records that a query finds, batch by batch, so that none of them waits in memory.
fn everything(
    gateway: Gateway,
    query: AuditQuery,
    export: Export,
    most: usize,
) -> impl Stream<Item = Result<String, StoreError>> {
    let first = AuditQuery {
        limit: BATCH.min(most),
        ..query
    };
    let header = match export {
        Export::Csv => format!("{}\n", COLUMNS.join(",")),
        Export::Jsonl => String::new(),
    };
    stream::try_unfold(
        (Some(first), header, most),
        move |(query, mut text, left)| {
            let gateway = gateway.clone();
            async move {
                let Some(query) = query else { return Ok(None) };
                let page = gateway.audit(&query).await?;
                let left = left.saturating_sub(page.records.len());
                let next = page.records.last().filter(|_| page.more && left > 0);
                let next = next.map(|record| AuditQuery {
                    before: Some(record.id.clone()),
                    limit: BATCH.min(left),
                    ..query.clone()
                });
                for record in page.records {
                    text.push_str(&RecordView::new(record).line(export));
                }
                Ok(Some((text, (next, String::new(), left))))
            }
        },
    )
}

impl Filter {
    fn query(&self) -> Result<AuditQuery, ApiError> {
        let read = |name: &str, text: &Option<String>| -> Result<Option<i64>, ApiError> {
            let Some(text) = text else { return Ok(None) };
            let time: SystemTime = humantime::parse_rfc3339_weak(text).map_err(|_| {
                ApiError::bad_request(format!(
                    "`{name}` is no time; write one such as `2026-01-31T12:00:00Z`"
                ))
            })?;
            Ok(Some(millis(time)))
        };
        Ok(AuditQuery {
            server: self.server.clone(),
            tool: self.tool.clone(),
            caller: self.caller.clone(),
            outcome: self.outcome.clone(),
            request_id: self.request_id.clone(),
            run_id: self.run_id.clone(),
            since: read("since", &self.since)?,
            until: read("until", &self.until)?,
            before: self.cursor.clone(),
            limit: Page::limit(self.limit)?,
        })
    }
}

const COLUMNS: [&str; 17] = [
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
        reason = "durations and costs are shown, not summed"
    )]
    pub(crate) fn new(record: Record) -> Self {
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
            started_at: time(record.started_at),
            duration_ms: record.duration_us.map(|micros| micros as f64 / 1e3),
            cost_usd: record.cost_micro_usd as f64 / 1e6,
            cached: record.cached,
            script: record.script.clone(),
        }
    }

    fn line(&self, export: Export) -> String {
        match export {
            Export::Jsonl => {
                // Arguments and results keep their own line breaks, which stand between tokens.
                let json = serde_json::to_string(self).unwrap_or_default();
                format!("{}\n", json.replace(['\n', '\r'], " "))
            }
            Export::Csv => format!("{}\n", self.cells().map(|cell| quoted(&cell)).join(",")),
        }
    }

    fn cells(&self) -> [String; 17] {
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

/// A cell of a CSV file. What a spreadsheet would take for a formula gets an apostrophe.
fn quoted(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = match formula {
        true => format!("'{cell}"),
        false => cell.to_owned(),
    };
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    }
}
