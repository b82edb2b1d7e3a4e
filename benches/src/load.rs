//! The load generator, in a process of its own: it reads a plan and writes what it saw.
//!
//! Every answer is checked. What is wrong is counted as an error and does not count as answered.

pub(crate) mod client;
mod pace;
mod tally;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use client::{Connection, Prepared};
use pace::Starts;
use serde::{Deserialize, Serialize};
pub(crate) use tally::Seen;
use tally::Tally;
use tokio::task::JoinSet;

/// One request and what its answer must be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) expect: Expect,
    /// MCP sessions to open first, which the requests then take in turn.
    pub(crate) sessions: usize,
    /// Whose sessions they are, in turn; those of the request's own key if it says nothing.
    pub(crate) keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Method {
    #[default]
    Post,
    Get,
}

/// What an answer must be, besides complete and of status 200.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Expect {
    pub(crate) marker: String,
    /// How often the marker stands in it; 0 for at least once.
    pub(crate) times: usize,
    /// What stands in the last bytes of a stream.
    pub(crate) end: String,
}

/// How fast to ask.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Each connection asks again when it is answered.
    Closed,
    /// So many requests a second, whether or not earlier ones are answered.
    Open(u32),
}

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// `127.0.0.1:8080`
    pub(crate) address: String,
    pub(crate) exchange: Exchange,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    /// It ends with this many requests even if there is time left.
    pub(crate) most: u64,
}

/// Follows the plan on standard input.
pub(crate) fn main() -> anyhow::Result<()> {
    let plan: Plan =
        serde_json::from_reader(std::io::stdin().lock()).context("standard input is no plan")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let seen = runtime.block_on(follow(plan))?;
    crate::say(&serde_json::to_string(&seen)?);
    Ok(())
}

async fn follow(plan: Plan) -> anyhow::Result<Seen> {
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        connections.push(Connection::open(&plan.address).await?);
    }
    let first = connections
        .first_mut()
        .context("a plan needs connections")?;
    let prepared = Arc::new(Prepared::new(&plan, first).await?);
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(plan.seconds);
    let starts = match plan.pace {
        Pace::Closed => Starts::at_once(plan.most, until),
        Pace::Open(rate) => Starts::at_rate(rate, plan.most, until),
    };
    let mut workers = JoinSet::new();
    for connection in connections {
        workers.spawn(work(connection, Arc::clone(&prepared), starts.clone()));
    }
    let mut all = Tally::default();
    while let Some(tally) = workers.join_next().await {
        all.add(&tally?);
    }
    Ok(all.seen(began.elapsed()))
}

async fn work(mut connection: Connection, prepared: Arc<Prepared>, starts: Starts) -> Tally {
    let mut tally = Tally::default();
    let mut body = Vec::new();
    while let Some((number, meant)) = starts.next().await {
        let request = prepared.request(number);
        match connection.ask(request, &mut body).await {
            Ok(answer) => match prepared.wrong(&answer, &body) {
                None => tally.answered(meant, &answer, body.len()),
                Some(why) => tally.failed(why),
            },
            Err(error) => {
                tally.failed(format!("{error:#}"));
                match connection.again().await {
                    Ok(fresh) => connection = fresh,
                    Err(_) => return tally,
                }
            }
        }
    }
    tally
}
