//! The agent inside a program: a hook decides about calls, names requests, and hears what happens.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use toolgate::agent::{Happening, RunEvent};
use toolgate::local::{LocalServer, Output};
use toolgate::{
    Caller, Dialect, Gateway, Hook, ModelRequest, Proposal, Request, Review, ServerName,
};
use toolgate_testkit::model::{Model, Reply};
use toolgate_testkit::zoo_path;

use crate::support::{config, stop};

/// Approves small numbers, and writes down what it hears.
#[derive(Debug, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Hook for Diary {
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

    fn turn_id(&self, request: &str, turn: u32) -> String {
        format!("{request}.{turn}")
    }

    fn hear(&self, event: RunEvent<'_>) {
        assert!(event.run.starts_with("run_"));
        let line = match event.happening {
            Happening::TurnStarted { turn, request_id } => format!("turn {turn} as {request_id}"),
            Happening::Text(text) => format!("says {text:?}"),
            Happening::TurnEnded { turn, usage } => format!("turn {turn} used {}", usage.output),
            Happening::CallStarted {
                id,
                name,
                arguments,
            } => format!("{id}: {name} {arguments}"),
            Happening::CallEnded { id, outcome, .. } => format!("{id}: {outcome}"),
            Happening::Ended { stop_reason } => format!("ended {stop_reason}"),
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

async fn gateway(model: &Model, hook: Diary) -> Gateway {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tools = LocalServer::new(ServerName::parse("own").unwrap())
        .tool("look", "Looks", &schema, |_| async {
            Ok(Output::Text("five".to_owned()))
        })
        .tool("take", "Takes", &schema, |_| async {
            Ok(Output::Text("taken".to_owned()))
        });
    let models = format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let builder = Gateway::builder(config(&(models + RULES))).local(tools);
    let gateway = builder.hook(hook).start().await.unwrap();
    gateway.settled().await;
    gateway
}

fn take(id: &str, n: u32) -> (String, &'static str, Value) {
    (id.to_owned(), "own_take", json!({"n": n}))
}

#[tokio::test]
async fn a_hook_has_its_say_in_a_run() {
    for stream in [false, true] {
        let look = ("c1".to_owned(), "own_look", json!({}));
        let model = Model::strict(vec![
            Reply::calls([look]).with_text("Hm.").usage(9, 2),
            Reply::calls([take("c2", 50)]).usage(9, 3),
            Reply::calls([take("c3", 5)]).usage(9, 4),
            Reply::text("Done.").usage(9, 5),
        ]);
        let diary = Diary::default();
        let heard = Arc::clone(&diary.0);
        let gateway = gateway(&model, diary).await;
        let said = json!([{"role": "user", "content": "go"}]);
        let body = json!({"model": "p/m", "messages": said, "stream": stream});
        let request = ModelRequest::new(Dialect::Chat, &body).of(&Request::with_id("q"));
        let answer = gateway.models().complete(&Caller::library(), request).await;
        let answer = String::from_utf8(answer.unwrap().bytes().await.to_vec()).unwrap();
        assert!(answer.contains("Done."), "{answer}");
        let told = model.turns().last().unwrap().body["messages"].to_string();
        assert!(
            told.contains("too many") && told.contains("taken"),
            "{told}"
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
        assert_eq!(*heard.lock().unwrap(), expected, "stream {stream}");
        stop(gateway).await;
    }
}

#[test]
fn the_example_runs() {
    let example = zoo_path().with_file_name("examples").join("agent");
    assert!(
        example.exists(),
        "{} is missing; run `cargo build -p toolgate --examples`",
        example.display()
    );
    let output = Command::new(example).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
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
}

/// The code of the guide is the code of tests of the documentation, with nothing in between.
#[test]
fn the_guide_shows_what_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let tested = ["src/lib.rs", "src/hook.rs", "src/agent.rs"].map(|file| {
        let text = read(file);
        let lines = text.lines().filter_map(|line| line.strip_prefix("//!"));
        let lines = lines.map(|line| line.trim().to_owned());
        lines.collect::<Vec<String>>()
    });
    let guide = read("../../docs/library.md");
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), tested.len());
    for (block, tested) in blocks.into_iter().zip(tested) {
        let (code, _) = block.split_once("```").unwrap();
        let mut rest = tested.iter();
        for line in code.lines().map(str::trim) {
            assert!(rest.any(|known| known == line), "not tested: {line}");
        }
    }
}
