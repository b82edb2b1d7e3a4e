//! Load generator, run as a separate process: reads a plan from stdin and writes the result.
//!
//! Every response is checked. Wrong ones count as errors, not as answered.

pub(crate) mod client;
mod pace;
mod tally;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::{Connection, PreparedRequests};
use pace::StartTimes;
use serde::{Deserialize, Serialize};
pub(crate) use tally::LoadResult;
use tally::Tally;
use tokio::task::JoinSet;

/// A request and its expected response.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) expect: Expectation,
    /// MCP sessions to open first; requests use them round-robin.
    pub(crate) sessions: usize,
    /// Keys of the sessions, round-robin; the request's own key if empty.
    pub(crate) keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Method {
    #[default]
    Post,
    Get,
}

/// Requirements on a response, besides being complete and having status 200.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Expectation {
    pub(crate) marker: String,
    /// Required number of occurrences of the marker; 0 for at least one.
    pub(crate) times: usize,
    /// Text required in the last bytes of a stream.
    pub(crate) end: String,
}

/// Pace of requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Each connection sends the next request after the previous response.
    Closed,
    /// Fixed rate per second, regardless of outstanding responses.
    Open(u32),
}

/// Instructions for the load generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadPlan {
    /// Address such as `127.0.0.1:8080`.
    pub(crate) address: String,
    pub(crate) exchange: Exchange,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    /// Maximum number of requests, even if time is left.
    pub(crate) max_requests: u64,
}

/// Runs the plan on standard input.
pub(crate) fn main() -> anyhow::Result<()> {
    let plan: LoadPlan = serde_json::from_reader(std::io::stdin().lock())
        .context("standard input is not a load plan")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(run_plan(plan))?;
    crate::print_result(&serde_json::to_string(&result)?);
    Ok(())
}

async fn run_plan(plan: LoadPlan) -> anyhow::Result<LoadResult> {
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        connections.push(Connection::open(&plan.address).await?);
    }
    let first = connections.first_mut().context("plan has no connections")?;
    let prepared = Arc::new(PreparedRequests::new(&plan, first).await?);
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(plan.seconds);
    let starts = match plan.pace {
        Pace::Closed => StartTimes::immediate(plan.max_requests, until),
        Pace::Open(rate) => StartTimes::at_rate(rate, plan.max_requests, until),
    };
    let mut workers = JoinSet::new();
    for connection in connections {
        workers.spawn(run_connection(
            connection,
            Arc::clone(&prepared),
            starts.clone(),
        ));
    }
    let mut all = Tally::default();
    while let Some(tally) = workers.join_next().await {
        all.merge(&tally?);
    }
    Ok(all.to_result(started.elapsed()))
}

async fn run_connection(
    mut connection: Connection,
    prepared: Arc<PreparedRequests>,
    starts: StartTimes,
) -> Tally {
    let mut tally = Tally::default();
    let mut body = Vec::new();
    while let Some((number, intended_start)) = starts.next().await {
        let request = prepared.request(number);
        match connection.send(request, &mut body).await {
            Ok(response) => match prepared.find_problem(&response, &body) {
                None => tally.record_success(intended_start, &response, body.len()),
                Some(problem) => tally.record_error(&problem),
            },
            Err(error) => {
                tally.record_error(&format!("{error:#}"));
                match connection.reconnect().await {
                    Ok(fresh) => connection = fresh,
                    Err(_) => return tally,
                }
            }
        }
    }
    tally
}
