//! Measures the time from the last tool result to the next model request, with few and many tools in
//! the catalog. Tools and model run in this process and answer immediately; the journal is on disk, as in
//! production.
//!
//! Run with `make bench-agent`. The figures include the loopback connection to the model.

#![allow(
    clippy::expect_used,
    reason = "a benchmark cannot continue without its setup"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use toolgate::config::{ConfigFormat, Document};
use toolgate::local::{LocalServer, LocalTool};
use toolgate::{Caller, Config, Dialect, Gateway, ModelRequest, RequestContext, ServerName, Store};
use toolgate_core::scope::Filters;
use toolgate_testkit::model::{Reply, ScriptedModel, has_tool_result};

const RUNS: usize = 500;
const TOOLS: [usize; 3] = [10, 1_000, 10_000];
/// Target of the design, in microseconds.
const TARGET_MICROS: f64 = 1000.0;

/// Time of the last tool result, and the gaps until the following model requests.
#[derive(Clone, Debug, Default)]
struct GapTimer(Arc<Mutex<(Option<Instant>, Vec<Duration>)>>);

impl GapTimer {
    fn record_tool_result(&self) {
        self.with(|(at, _)| *at = Some(Instant::now()));
    }

    fn record_model_request(&self) {
        self.with(|(at, gaps)| gaps.extend(at.take().map(|at| at.elapsed())));
    }

    /// Returns a quantile of the gaps in microseconds.
    fn quantile_micros(&self, quantile: f64) -> f64 {
        self.with(|(_, gaps)| {
            gaps.sort_unstable();
            let last = gaps.len().saturating_sub(1);
            let index = (last as f64 * quantile).round() as usize;
            gaps.get(index)
                .map_or(f64::NAN, |gap| gap.as_secs_f64() * 1e6)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut (Option<Instant>, Vec<Duration>)) -> T) -> T {
        work(&mut self.0.lock())
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        print_line(
            "tools in the catalog       p50      p99   µs from a tool's result to the next request",
        );
        for tools in TOOLS {
            let timer = measure(tools).await;
            let (p50, p99) = (timer.quantile_micros(0.5), timer.quantile_micros(0.99));
            let verdict = if p50 < TARGET_MICROS { "met" } else { "missed" };
            print_line(&format!(
                "{tools:>20} {p50:>9.0} {p99:>8.0}   target {TARGET_MICROS:.0}: {verdict}"
            ));
        }
    });
}

async fn measure(tools: usize) -> GapTimer {
    let timer = GapTimer::default();
    let model_timer = timer.clone();
    let model = ScriptedModel::start(vec![Reply::from_request(move |body| {
        model_timer.record_model_request();
        if has_tool_result(body) {
            Reply::text("done")
        } else {
            Reply::calls([("c1", "bench_tool_00001", json!({"n": 1}))])
        }
    })]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::builder(config(&model.url()))
        .local(server(tools, &timer))
        .store(Store::open(folder.path()).await.expect("a store"))
        .start()
        .await
        .expect("a gateway");
    gateway.wait_until_settled().await;
    // Offer the model ten tools regardless of the catalog's size.
    let request = Arc::new(RequestContext {
        filters: Filters {
            include_tools: Some(vec!["bench.tool_0000*".to_owned()]),
            ..Filters::default()
        },
        ..RequestContext::default()
    });
    let body = json!({"model": "p/m", "messages": [{"role": "user", "content": "go"}]});
    for run in 0..RUNS + RUNS / 10 {
        if run == RUNS / 10 {
            timer.with(|(_, gaps)| gaps.clear());
        }
        let model_request = ModelRequest::new(Dialect::Chat, &body).with_request(&request);
        let response = gateway.complete(&Caller::library(), model_request).await;
        response.expect("a response").bytes().await;
    }
    gateway.stop(Duration::from_secs(5)).await;
    timer
}

fn config(model: &str) -> Config {
    let text = format!(
        "[providers.p]\nbase_url = \"{model}/v1\"\n[[permissions.rules]]\ntool = \"bench.*\"\naction = \"allow\"\n"
    );
    let document = Document::parse("bench.toml", ConfigFormat::Toml, &text);
    Config::load(&[document]).expect("a valid configuration").0
}

fn server(tools: usize, timer: &GapTimer) -> LocalServer {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let name = ServerName::parse("bench").expect("a name");
    (1..=tools).fold(LocalServer::new(name), |server, number| {
        let timer = timer.clone();
        let tool = format!("tool_{number:05}");
        let tool = LocalTool::raw(&tool, schema.clone(), move |_, _| {
            let timer = timer.clone();
            async move {
                timer.record_tool_result();
                Ok("done")
            }
        });
        server.tool(tool.description("Answers immediately"))
    })
}

#[allow(clippy::print_stdout, reason = "the benchmark prints a table")]
fn print_line(line: &str) {
    println!("{line}");
}
