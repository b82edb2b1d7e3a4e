//! What the tools of the zoo do when they are called.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rpc::{INVALID_PARAMS, RpcError, notification, quoted};
use super::server::{Call, Outcome, exit};

#[derive(Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Deserialize)]
struct Sleep {
    ms: u64,
}

#[derive(Deserialize)]
struct Big {
    bytes: usize,
}

#[derive(Deserialize)]
struct Say {
    text: String,
    #[serde(default)]
    fails: bool,
}

#[derive(Deserialize)]
struct Progress {
    steps: u64,
}

/// Runs the tool that the request names; a listed one without code of its own echoes.
pub(crate) async fn call(call: &Call<'_>) -> Outcome {
    let name = call.request.params.name.as_deref().unwrap_or_default();
    let catalog = &call.server.catalog;
    match name {
        "add" => with_arguments(call, |Add { a, b }| {
            let sum = i128::from(a) + i128::from(b);
            format!(
                r#"{{"content":[{{"type":"text","text":"{sum}"}}],"structuredContent":{{"sum":{sum}}}}}"#
            )
        }),
        "fail" => Outcome::Result(catalog.fail()),
        "rpc_error" => Outcome::Error(
            RpcError::new(INVALID_PARAMS, "refused on purpose")
                .with_data(r#"{"reason":"zoo","big":18446744073709551617}"#.to_owned()),
        ),
        "sleep" => sleep(call).await,
        "big" => with_arguments(call, |Big { bytes }| text(&"x".repeat(bytes))),
        "kinds" => Outcome::Result(catalog.kinds()),
        "env" => Outcome::Result(text(&object(environment()))),
        "headers" => Outcome::Result(text(&object(call.origin.headers.iter().cloned()))),
        "trace" => Outcome::Result(text(&trace(call))),
        "die" => exit(7),
        "progress" => with_arguments(call, |Progress { steps }| {
            report(call, steps);
            text(&format!("{steps} steps"))
        }),
        "empty" => Outcome::Result(r#"{"content":[]}"#.to_owned()),
        "say" => with_arguments(call, |Say { text, fails }| {
            let text = quoted(&text);
            format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":{fails}}}"#)
        }),
        "header_tool" => Outcome::Result(text(&region(call))),
        name => unscripted(call, name),
    }
}

/// What a tool does that has no code of its own: it echoes, if it is listed.
pub(crate) fn unscripted(call: &Call<'_>, name: &str) -> Outcome {
    if call.server.catalog.tool_schema(name).is_some() {
        Outcome::Result(echo(call.request.arguments()))
    } else {
        let message = format!("unknown tool `{name}`");
        Outcome::Error(RpcError::new(INVALID_PARAMS, message))
    }
}

fn echo(arguments: &str) -> String {
    let text = quoted(arguments);
    format!(
        r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{"arguments":{arguments}}},"x-zoo":-0.0}}"#
    )
}

async fn sleep(call: &Call<'_>) -> Outcome {
    let ms = match arguments(call) {
        Ok(Sleep { ms }) => ms,
        Err(error) => return Outcome::Error(error),
    };
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(ms)) => {
            Outcome::Result(text(&format!("slept {ms} ms")))
        }
        () = call.cancelled() => {
            call.server.ledger.cancelled();
            Outcome::Nothing
        }
    }
}

fn report(call: &Call<'_>, steps: u64) {
    let Some(token) = call.request.progress_token() else {
        return;
    };
    for step in 1..=steps {
        let params = format!(
            r#"{{"progressToken":{token},"progress":{step},"total":{steps},"message":"step {step}"}}"#
        );
        call.outbox
            .notify(notification("notifications/progress", &params));
    }
}

fn region(call: &Call<'_>) -> String {
    call.origin
        .headers
        .iter()
        .find(|(name, _)| name == "mcp-param-region")
        .map_or_else(String::new, |(_, value)| value.clone())
}

fn trace(call: &Call<'_>) -> String {
    let meta = call.request.params.meta.as_ref();
    let meta = meta.map(|meta| {
        json!({"traceparent": meta.traceparent, "tracestate": meta.tracestate, "baggage": meta.baggage})
    });
    let header = |wanted: &str| {
        let mut headers = call.origin.headers.iter();
        headers
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value)
    };
    let headers = json!({
        "traceparent": header("traceparent"),
        "tracestate": header("tracestate"),
        "baggage": header("baggage"),
    });
    json!({"meta": meta, "headers": headers}).to_string()
}

fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| {
        (
            name.to_string_lossy().into_owned(),
            value.to_string_lossy().into_owned(),
        )
    })
}

fn object(entries: impl Iterator<Item = (String, String)>) -> String {
    let map: serde_json::Map<String, Value> = entries
        .map(|(name, value)| (name, Value::from(value)))
        .collect();
    Value::from(map).to_string()
}

/// The raw result of a tool that did not do what it was asked to.
pub(crate) fn failed(problem: &str) -> String {
    let text = quoted(problem);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

fn text(text: &str) -> String {
    let text = quoted(text);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)
}

fn with_arguments<A: DeserializeOwned>(call: &Call<'_>, run: impl FnOnce(A) -> String) -> Outcome {
    arguments(call).map(run).into()
}

fn arguments<A: DeserializeOwned>(call: &Call<'_>) -> Result<A, RpcError> {
    serde_json::from_str(call.request.arguments())
        .map_err(|error| RpcError::new(INVALID_PARAMS, format!("bad arguments: {error}")))
}
