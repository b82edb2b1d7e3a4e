//! Implementations of the zoo's tools.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rpc::{INVALID_PARAMS, ZooError, json_string, notification};
use super::server::{CallOutcome, ZooCall, exit};

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
struct Append {
    line: String,
}

#[derive(Default, Deserialize)]
struct RpcErrorSize {
    /// Length to which the message of the error is padded.
    #[serde(default)]
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

/// Runs the tool that the request names; a listed tool without its own implementation echoes.
pub(crate) async fn call(call: &ZooCall<'_>) -> CallOutcome {
    let name = call.request.params.name.as_deref().unwrap_or_default();
    let catalog = &call.server.catalog;
    if let Some(result) = catalog.result_from_file(name) {
        return CallOutcome::Result(result);
    }
    match name {
        "add" => with_arguments(call, |Add { a, b }| {
            let sum = i128::from(a) + i128::from(b);
            format!(
                r#"{{"content":[{{"type":"text","text":"{sum}"}}],"structuredContent":{{"sum":{sum}}}}}"#
            )
        }),
        "fail" => CallOutcome::Result(catalog.fail()),
        "rpc_error" => CallOutcome::Error(rpc_error(call)),
        "append" if call.server.executions.is_open() => with_arguments(call, |Append { line }| {
            call.server.executions.append(&line);
            text_result(&line)
        }),
        "sleep" => sleep(call).await,
        "big" => with_arguments(call, |Big { bytes }| text_result(&"x".repeat(bytes))),
        "kinds" => CallOutcome::Result(catalog.kinds()),
        "env" => CallOutcome::Result(text_result(&json_object(environment()))),
        "headers" => CallOutcome::Result(text_result(&json_object(
            call.origin.headers.iter().cloned(),
        ))),
        "trace" => CallOutcome::Result(text_result(&trace_context(call))),
        "die" => exit(7),
        "progress" => with_arguments(call, |Progress { steps }| {
            report_progress(call, steps);
            text_result(&format!("{steps} steps"))
        }),
        "empty" => CallOutcome::Result(r#"{"content":[]}"#.to_owned()),
        "say" => with_arguments(call, |Say { text, fails }| {
            let text = json_string(&text);
            format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":{fails}}}"#)
        }),
        "header_tool" => CallOutcome::Result(text_result(&region_header(call))),
        name => echo_if_listed(call, name),
    }
}

/// Echoes the arguments if the tool is listed; otherwise fails with an unknown-tool error.
pub(crate) fn echo_if_listed(call: &ZooCall<'_>, name: &str) -> CallOutcome {
    if call.server.catalog.tool_schema(name).is_some() {
        CallOutcome::Result(echo(call.request.arguments()))
    } else {
        let message = format!("unknown tool `{name}`");
        CallOutcome::Error(ZooError::new(INVALID_PARAMS, message))
    }
}

fn rpc_error(call: &ZooCall<'_>) -> ZooError {
    let RpcErrorSize { bytes } = parse_arguments(call).unwrap_or_default();
    // With a terminal escape, which must not reach models and people.
    let message = "refused\u{1b}[2J on purpose";
    let message = format!(
        "{message}{}",
        "x".repeat(bytes.saturating_sub(message.len()))
    );
    ZooError::new(INVALID_PARAMS, message)
        .with_data(r#"{"reason":"zoo","big":18446744073709551617}"#.to_owned())
}

fn echo(arguments: &str) -> String {
    let text = json_string(arguments);
    format!(
        r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{"arguments":{arguments}}},"x-zoo":-0.0}}"#
    )
}

async fn sleep(call: &ZooCall<'_>) -> CallOutcome {
    let ms = match parse_arguments(call) {
        Ok(Sleep { ms }) => ms,
        Err(error) => return CallOutcome::Error(error),
    };
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(ms)) => {
            CallOutcome::Result(text_result(&format!("slept {ms} ms")))
        }
        () = call.wait_for_cancellation() => {
            call.server.request_log.log_cancelled();
            CallOutcome::Nothing
        }
    }
}

fn report_progress(call: &ZooCall<'_>, steps: u64) {
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

fn region_header(call: &ZooCall<'_>) -> String {
    call.origin
        .headers
        .iter()
        .find(|(name, _)| name == "mcp-param-region")
        .map_or_else(String::new, |(_, value)| value.clone())
}

fn trace_context(call: &ZooCall<'_>) -> String {
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

fn json_object(entries: impl Iterator<Item = (String, String)>) -> String {
    let map: serde_json::Map<String, Value> = entries
        .map(|(name, value)| (name, Value::from(value)))
        .collect();
    Value::from(map).to_string()
}

/// Builds the raw result of a failed tool call.
pub(crate) fn error_result(problem: &str) -> String {
    let text = json_string(problem);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#)
}

fn text_result(text: &str) -> String {
    let text = json_string(text);
    format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)
}

fn with_arguments<A: DeserializeOwned>(
    call: &ZooCall<'_>,
    run: impl FnOnce(A) -> String,
) -> CallOutcome {
    parse_arguments(call).map(run).into()
}

fn parse_arguments<A: DeserializeOwned>(call: &ZooCall<'_>) -> Result<A, ZooError> {
    serde_json::from_str(call.request.arguments())
        .map_err(|error| ZooError::new(INVALID_PARAMS, format!("bad arguments: {error}")))
}
