//! How long the agent takes between the last tool's result and the next request to the model, with few
//! and with many tools in the catalog. Tools and model answer at once and are in this process; the
//! journal is on disk, as it is in use.
//!
//! `make bench-agent` runs it. What it measures includes the way to the model over loopback.

#![allow(
    clippy::expect_used,
    reason = "a bench that cannot start has nothing to say"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use toolgate::config::{Document, Format};
use toolgate::local::{LocalServer, Output};
use toolgate::{Caller, Config, Dialect, Gateway, ModelRequest, Request, ServerName, Store};
use toolgate_core::scope::Filters;
use toolgate_testkit::model::{Model, Reply, has_tool_result};

const RUNS: usize = 500;
const TOOLS: [usize; 3] = [10, 1_000, 10_000];
/// Of the design.
const GOAL: f64 = 1000.0;

/// When a tool answered last, and what came of it.
#[derive(Clone, Debug, Default)]
struct Clock(Arc<Mutex<(Option<Instant>, Vec<Duration>)>>);

impl Clock {
    fn answered(&self) {
        self.with(|(at, _)| *at = Some(Instant::now()));
    }

    fn asked(&self) {
        self.with(|(at, gaps)| gaps.extend(at.take().map(|at| at.elapsed())));
    }

    /// Microseconds at a part of all, from the shortest to the longest.
    fn at(&self, part: f64) -> f64 {
        self.with(|(_, gaps)| {
            gaps.sort_unstable();
            let last = gaps.len().saturating_sub(1);
            let at = (last as f64 * part).round() as usize;
            gaps.get(at).map_or(f64::NAN, |gap| gap.as_secs_f64() * 1e6)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut (Option<Instant>, Vec<Duration>)) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        say(
            "tools in the catalog       p50      p99   µs from a tool's result to the next request",
        );
        for tools in TOOLS {
            let clock = measure(tools).await;
            let (half, most) = (clock.at(0.5), clock.at(0.99));
            let kept = if half < GOAL { "kept" } else { "missed" };
            say(&format!(
                "{tools:>20} {half:>9.0} {most:>8.0}   goal {GOAL:.0}: {kept}"
            ));
        }
    });
}

async fn measure(tools: usize) -> Clock {
    let clock = Clock::default();
    let heard = clock.clone();
    let model = Model::start(vec![Reply::with(move |body| {
        heard.asked();
        match has_tool_result(body) {
            true => Reply::text("done"),
            false => Reply::calls([("c1", "bench_tool_00001", json!({"n": 1}))]),
        }
    })]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::builder(config(&model.url()))
        .local(server(tools, &clock))
        .store(Store::open(folder.path()).await.expect("a store"))
        .start()
        .await
        .expect("a gateway");
    gateway.settled().await;
    // The model is shown ten, however many there are.
    let request = Arc::new(Request {
        filters: Filters {
            include_tools: Some(vec!["bench.tool_0000*".to_owned()]),
            ..Filters::default()
        },
        ..Request::default()
    });
    let body = json!({"model": "p/m", "messages": [{"role": "user", "content": "go"}]});
    for run in 0..RUNS + RUNS / 10 {
        if run == RUNS / 10 {
            clock.with(|(_, gaps)| gaps.clear());
        }
        let asked = ModelRequest::new(Dialect::Chat, &body).of(&request);
        let answer = gateway.models().complete(&Caller::library(), asked).await;
        answer.expect("an answer").bytes().await;
    }
    gateway.stop(Duration::from_secs(5)).await;
    clock
}

fn config(model: &str) -> Config {
    let text = format!(
        "[providers.p]\nbase_url = \"{model}/v1\"\n[[permissions.rules]]\ntool = \"bench.*\"\naction = \"allow\"\n"
    );
    let document = Document::parse("bench.toml", Format::Toml, &text);
    Config::load(&[document]).expect("a valid configuration").0
}

fn server(tools: usize, clock: &Clock) -> LocalServer {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let name = ServerName::parse("bench").expect("a name");
    (1..=tools).fold(LocalServer::new(name), |server, number| {
        let clock = clock.clone();
        let tool = format!("tool_{number:05}");
        server.tool(&tool, "Answers at once", &schema, move |_| {
            let clock = clock.clone();
            async move {
                clock.answered();
                Ok(Output::Text("done".to_owned()))
            }
        })
    })
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
fn say(line: &str) {
    println!("{line}");
}
