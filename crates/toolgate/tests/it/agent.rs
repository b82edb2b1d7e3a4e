//! The agent embedded in a program: a hook reviews calls, generates request ids and observes runs.

use std::process::Command;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use toolgate::agent::{RunEvent, RunEventKind};
use toolgate::local::{LocalServer, LocalTool};
use toolgate::{
    Caller, Dialect, Gateway, Hook, ModelRequest, Proposal, RequestContext, Review, ServerName,
};
use toolgate_testkit::model::{Reply, ScriptedModel};
use toolgate_testkit::zoo_path;

use crate::support::{config, stop};

/// Approves small numbers and records the events of a run.
#[derive(Debug, Default)]
struct RecordingHook(Arc<Mutex<Vec<String>>>);

impl Hook for RecordingHook {
    fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        let review = match proposal.arguments.value()["n"].as_u64() {
            Some(0..10) => Review::Approve,
            Some(_) => Review::Deny {
                reason: "too many".to_owned(),
            },
            None => Review::Proceed,
        };
        Box::pin(std::future::ready(review))
    }

    fn turn_id(&self, request: &str, turn: u32) -> Option<String> {
        Some(format!("{request}.{turn}"))
    }

    fn on_run_event(&self, event: RunEvent<'_>) {
        assert!(event.run.starts_with("run_"));
        let line = match event.kind {
            RunEventKind::TurnStarted { turn, request_id } => {
                format!("turn {turn} as {request_id}")
            }
            RunEventKind::Text(text) => format!("says {text:?}"),
            RunEventKind::TurnEnded { turn, usage } => format!("turn {turn} used {}", usage.output),
            RunEventKind::CallStarted {
                id,
                name,
                arguments,
            } => format!("{id}: {name} {arguments}"),
            RunEventKind::CallEnded { id, outcome, .. } => format!("{id}: {outcome}"),
            RunEventKind::Ended { stop_reason } => format!("ended {stop_reason}"),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push(line);
    }
}

const RULES: &str = r#"
[[permissions.rules]]
tool = "own.look"
action = "allow"
[[permissions.rules]]
tool = "own.take"
action = "ask"
"#;

async fn gateway(model: &ScriptedModel, hook: RecordingHook) -> Gateway {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tools = LocalServer::new(ServerName::parse("own").unwrap())
        .tool(LocalTool::raw("look", schema.clone(), |_, _| async {
            Ok("five")
        }))
        .tool(LocalTool::raw("take", schema, |_, _| async { Ok("taken") }));
    let models = format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let builder = Gateway::builder(config(&(models + RULES))).local(tools);
    let gateway = builder.hook(hook).start().await.unwrap();
    gateway.wait_until_settled().await;
    gateway
}

fn take(id: &str, n: u32) -> (String, &'static str, Value) {
    (id.to_owned(), "own_take", json!({"n": n}))
}

#[tokio::test]
async fn hook_reviews_calls_and_receives_events_of_a_run() {
    for stream in [false, true] {
        let look = ("c1".to_owned(), "own_look", json!({}));
        let model = ScriptedModel::start_strict(vec![
            Reply::calls([look]).with_text("Hm.").with_usage(9, 2),
            Reply::calls([take("c2", 50)]).with_usage(9, 3),
            Reply::calls([take("c3", 5)]).with_usage(9, 4),
            Reply::text("Done.").with_usage(9, 5),
        ]);
        let hook = RecordingHook::default();
        let events = Arc::clone(&hook.0);
        let gateway = gateway(&model, hook).await;
        let messages = json!([{"role": "user", "content": "go"}]);
        let body = json!({"model": "p/m", "messages": messages, "stream": stream});
        let request =
            ModelRequest::new(Dialect::Chat, &body).with_request(&RequestContext::with_id("q"));
        let answer = gateway.complete(&Caller::library(), request).await;
        let answer = String::from_utf8(answer.unwrap().bytes().await.to_vec()).unwrap();
        assert!(answer.contains("Done."), "{answer}");
        let sent = model.turns().last().unwrap().body["messages"].to_string();
        assert!(
            sent.contains("too many") && sent.contains("taken"),
            "{sent}"
        );
        let expected = [
            "turn 1 as q.1",
            "says \"Hm.\"",
            "turn 1 used 2",
            "c1: own_look {}",
            "c1: ok",
            "turn 2 as q.2",
            "turn 2 used 3",
            "c2: own_take {\"n\":50}",
            "c2: denied",
            "turn 3 as q.3",
            "turn 3 used 4",
            "c3: own_take {\"n\":5}",
            "c3: ok",
            "turn 4 as q.4",
            "says \"Done.\"",
            "turn 4 used 5",
            "ended done",
        ];
        assert_eq!(*events.lock().unwrap(), expected, "stream {stream}");
        stop(gateway).await;
    }
}

/// Runs an example and returns its output.
fn run_example(name: &str) -> String {
    let example = zoo_path().with_file_name("examples").join(name);
    assert!(
        example.exists(),
        "{} is missing; run `cargo build -p toolgate --examples`",
        example.display()
    );
    let output = Command::new(example).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    shown
}

#[test]
fn examples_run() {
    let shown = run_example("agent");
    for line in [
        "-- turn 1 (pears/1)",
        "What do they cost?",
        "shop_order: denied",
        "shop_order: ok",
        "Ten pears are on their way.",
        "-- done",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let shown = run_example("embed");
    assert!(shown.starts_with("hello world\nlibrary in "), "{shown}");
}

/// The guide's code is compiled as documentation tests, but its configuration is only text there.
#[test]
fn configuration_in_the_library_guide_is_valid() {
    let guide = include_str!("../../../../docs/library.md");
    let (_, rest) = guide.split_once("r#\"\n").unwrap();
    let (toml, _) = rest.split_once("\"#;").unwrap();
    let config = config(toml);
    let lists = &config.servers[0].lists;
    assert!(lists.auto_execute.contains("list_directory"));
    assert!(!lists.auto_execute.contains("write_file"));
}
