//! `toolgate runs list|show|cancel`: lists, shows and cancels agent runs of a running gateway.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::output::{Cell, Details, Table, Tone, find_by_id, format_id, format_time, print_line};
use super::target::RemoteFlags;
use crate::remote::RemoteGateway;

/// Newest runs among which ids are looked up.
const MAX_SEARCHED_RUNS: usize = 1000;
/// Length of a whole id.
const FULL_ID_CHARS: usize = 36;

#[derive(Debug, clap::Args)]
pub(super) struct RunsCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List runs, newest first
    List {
        /// Only runs in this state
        #[arg(long, value_enum)]
        state: Option<StateArg>,
        /// Maximum number of runs to show
        #[arg(long, default_value_t = 20)]
        limit: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a run and its steps
    Show {
        /// Id of the run, or a unique part of its beginning or end
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Cancel a run, including its calls in flight
    Cancel {
        /// Id of the run, or a unique part of its beginning or end
        id: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateArg {
    Running,
    Done,
    Waiting,
    Failed,
    Cancelled,
    Interrupted,
}

impl RunsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        match self.action {
            Action::List { state, limit, json } => list(&remote, state, limit, json).await?,
            Action::Show { id, json } => show(&remote, &id, json).await?,
            Action::Cancel { id } => {
                let id = find_run(&remote, &id).await?;
                let path = format!("api/runs/{id}/cancel");
                let _: Value = remote.send_json(Method::POST, &path, &json!({})).await?;
                print_line(&format!("cancelled run {id}"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl StateArg {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

async fn list(
    remote: &RemoteGateway,
    state: Option<StateArg>,
    limit: u16,
    json: bool,
) -> anyhow::Result<()> {
    let query: Vec<_> = state
        .map(|state| ("state", state.as_str()))
        .into_iter()
        .collect();
    let runs = remote.list_items("api/runs", "runs", &query, usize::from(limit));
    let runs = runs.await?;
    if json {
        return print_line(&format!("{:#}", Value::Array(runs)));
    }
    let mut table = Table::new([
        "ID",
        "STARTED",
        "STATE",
        "STOPPED BY",
        "MODEL",
        "CALLER",
        "ITERATIONS",
        "TOKENS",
        "COST",
    ]);
    for run in &runs {
        let text = |key: &str| run[key].as_str().unwrap_or("-");
        table.push([
            Cell::whole(format_id(text("id"))),
            Cell::whole(format_time(text("started_at"))),
            Cell::from(text("state")).tone(Tone::of_state(text("state"))),
            text("stop_reason").into(),
            text("model").into(),
            text("caller").into(),
            Cell::number(&run["iterations"]),
            Cell::number(tokens(run)),
            Cell::number(cost(run)),
        ]);
    }
    table.print("no runs")
}

async fn show(remote: &RemoteGateway, id: &str, json: bool) -> anyhow::Result<()> {
    let id = find_run(remote, id).await?;
    let run: Value = remote.get(&format!("api/runs/{id}"), &[]).await?;
    if json {
        return print_line(&format!("{run:#}"));
    }
    let text = |key: &str| run[key].as_str();
    let state = text("state").unwrap_or("-");
    Details::default()
        .with("id", id.as_str())
        .with("state", Cell::from(state).tone(Tone::of_state(state)))
        .with_some("stopped by", text("stop_reason"))
        .with_some("model", text("model"))
        .with_some("caller", text("caller"))
        .with_some("started", text("started_at").map(format_time))
        .with_some("ended", text("ended_at").map(format_time))
        .with("iterations", run["iterations"].to_string())
        .with("tokens", tokens(&run))
        .with("cost", cost(&run))
        .print()?;
    print_line("")?;
    let mut table = Table::new(["TIME", "STEP", "NAME", "DETAIL"]);
    for entry in run["timeline"].as_array().into_iter().flatten() {
        let step = &entry["step"];
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        table.push([
            Cell::whole(format_time(entry["at"].as_str().unwrap_or_default())),
            text("kind").into(),
            text("name").into(),
            describe_step(step).into(),
        ]);
    }
    table.print("no steps")
}

/// Finds the whole id of a run.
async fn find_run(remote: &RemoteGateway, id: &str) -> anyhow::Result<String> {
    if id.len() >= FULL_ID_CHARS {
        return Ok(id.to_owned());
    }
    let runs = remote.list_items("api/runs", "runs", &[], MAX_SEARCHED_RUNS);
    let runs = runs.await?;
    let ids = runs.iter().filter_map(|run| run["id"].as_str());
    let found = find_by_id("run", id, ids);
    let found = found.context("only the newest 1000 runs are found by a part of their id");
    Ok(found?.to_owned())
}

fn describe_step(step: &Value) -> String {
    let text = |key: &str| step[key].as_str().map(str::to_owned);
    match step["kind"].as_str() {
        Some("turn") => text("text").unwrap_or_default(),
        Some("call_opened") => text("arguments").unwrap_or_default(),
        Some("call_closed") => {
            let result = step["result"][0]["text"].as_str().unwrap_or_default();
            let failed = if step["is_error"] == true {
                "failed: "
            } else {
                ""
            };
            format!("{failed}{result}")
        }
        Some("call_waits") => match step["approval_id"].as_str() {
            Some(approval) => format!("waits for approval {}", format_id(approval)),
            None => "left to the caller".to_owned(),
        },
        Some("resumed") => text("by").map_or_else(String::new, |by| format!("by {by}")),
        Some("ended") => text("stop_reason").unwrap_or_default(),
        _ => String::new(),
    }
}

fn tokens(run: &Value) -> String {
    let number = |key: &str| run[key].as_u64().unwrap_or(0);
    format!(
        "{} in, {} out",
        number("input_tokens"),
        number("output_tokens")
    )
}

fn cost(run: &Value) -> String {
    format!("${:.4}", run["cost_usd"].as_f64().unwrap_or(0.0))
}
