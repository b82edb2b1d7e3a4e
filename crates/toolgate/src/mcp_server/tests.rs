use std::mem::size_of_val;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use toolgate_core::Config;
use toolgate_core::name::ServerName;
use toolgate_mcp::TraceContext;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::local::{LocalServer, LocalTool, ToolError};

use super::message_queue::message_queue;
use super::meta::{ModernMeta, RequestMeta};
use super::method::Method;
use super::request::RequestHandler;
use super::*;
use crate::call::RequestContext;

/// A gateway with the tools `local_echo` and `local_wait`, and a connection to all of it.
async fn connect() -> (Gateway, Server, Connection) {
    let schema = json!({"type": "object", "properties":
        {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let local = LocalServer::new(ServerName::parse("local").unwrap())
        .tool(LocalTool::raw("echo", schema, |_, arguments| async move {
            Ok(arguments.get().to_owned())
        }))
        .tool(LocalTool::raw("wait", json!({"type": "object"}), |_, _| {
            std::future::pending::<Result<String, ToolError>>()
        }));
    let builder = Gateway::builder(Config::default()).local(local);
    let gateway = builder.start().await.unwrap();
    gateway.wait_until_settled().await;
    let server = Server::new(gateway.clone());
    let connection = server.connect(McpEndpoint::All, Caller::library()).unwrap();
    (gateway, server, connection)
}

fn headers(pairs: &[(&'static str, &str)]) -> Delivery {
    let pairs = pairs.iter();
    let headers = pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    Delivery {
        headers: Some(headers.collect()),
        ..Delivery::without_headers()
    }
}

fn request(method: &str, params: &Value) -> Vec<u8> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    request.to_string().into_bytes()
}

fn modern(method: &str, mut params: Value) -> Vec<u8> {
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    request(method, &params)
}

fn single(reply: Reply) -> (u16, Value) {
    let Reply::Single(reply) = reply else {
        panic!("{reply:?}")
    };
    let body = serde_json::from_str(&reply.body.into_string()).unwrap();
    (reply.status, body)
}

#[tokio::test]
async fn futures_of_the_hot_path_stay_small() {
    let (gateway, _, connection) = connect().await;
    let call = modern("tools/call", json!({"name": "local_echo", "arguments": {}}));
    let handling = connection.handle(&call, Delivery::without_headers());
    // The HTTP server holds one of these for each request.
    assert!(size_of_val(&handling) <= 512, "{}", size_of_val(&handling));
    // And this one is allocated for each request.
    let params = to_raw(&Object::new().text("name", "local_echo"));
    let meta = RequestMeta {
        progress_token: None,
        trace: TraceContext::default(),
        forwarded: Object::new(),
    };
    let meta = ModernMeta {
        capabilities: jsonrpc::empty_object(),
        log_level: None,
        shared: meta,
    };
    let (sender, _messages) = message_queue(&gateway, &Caller::http());
    let context = RequestContext::default();
    let handler = RequestHandler::modern(&connection, context, meta, None, sender);
    let answer = handler.answer(Method::parse("tools/call", Era::Modern, Some(&params)).unwrap());
    println!(
        "handle {} bytes, answer {} bytes",
        size_of_val(&handling),
        size_of_val(&answer)
    );
    assert!(size_of_val(&answer) <= 3072, "{}", size_of_val(&answer));
    drop(answer);
    let (status, body) = single(handling.await);
    assert_eq!(
        (status, &body["result"]["content"][0]["text"]),
        (200, &json!("{}"))
    );
    gateway.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn tool_pages_are_encoded_once_and_not_copied() {
    let (gateway, _, connection) = connect().await;
    let list = modern("tools/list", json!({}));
    let mut pages = Vec::new();
    for _ in 0..2 {
        let reply = connection.handle(&list, Delivery::without_headers());
        let Some(Reply::Single(reply)) = reply.now_or_never() else {
            panic!("tools/list does not wait")
        };
        let [_, page, _] = reply.body.into_parts();
        pages.push(page);
    }
    assert_eq!(pages[0].as_ptr(), pages[1].as_ptr());
    assert!(!pages[0].is_empty());
    gateway.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn headers_must_repeat_mirrored_arguments_only_over_http() {
    let (gateway, _, connection) = connect().await;
    let params = json!({"name": "local_echo", "arguments": {"region": "eu"}});
    let call = modern("tools/call", params);
    let base = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "local_echo"),
    ];
    for (region, expected) in [(Some("eu"), 200), (Some("us"), 400), (None, 400)] {
        let region = region.map(|region| ("mcp-param-region", region));
        let sent: Vec<_> = base.into_iter().chain(region).collect();
        let (status, body) = single(connection.handle(&call, headers(&sent)).await);
        assert_eq!(status, expected, "{body}");
        if status == 400 {
            assert_eq!(body["error"]["code"], jsonrpc::HEADER_MISMATCH, "{body}");
        }
    }
    let without = connection.handle(&call, Delivery::without_headers());
    assert_eq!(single(without.await).0, 200);
    gateway.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn dedicated_connection_needs_no_session_id_and_cancels_in_order() {
    let (gateway, _, connection) = connect().await;
    let (connection, messages) = connection.into_dedicated();
    let handle = |message: &[u8]| connection.handle(message, Delivery::without_headers());
    let early = single(handle(&request("tools/list", &json!({}))).await);
    assert_eq!(early.1["error"]["code"], jsonrpc::INVALID_REQUEST);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let initialized = handle(&request("initialize", &params));
    // Messages take effect when they are handed over, before any reply is awaited.
    let wait = handle(&request("tools/call", &json!({"name": "local_wait"})));
    let cancel =
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert!(matches!(handle(cancel).await, Reply::Accepted));
    assert!(matches!(wait.await, Reply::Accepted), "no reply is due");
    let (_, body) = single(initialized.await);
    assert_eq!(body["result"]["protocolVersion"], "2025-11-25");
    connection.disconnect();
    drop(connection);
    assert_eq!(messages.collect::<Vec<_>>().await, Vec::<String>::new());
    gateway.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn session_streams_end_when_the_server_stops() {
    let (gateway, server, connection) = connect().await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let reply = connection.handle(&request("initialize", &params), headers(&[]));
    let Reply::Single(reply) = reply.await else {
        panic!("initialize has one response")
    };
    let session = reply.session.unwrap();
    let sent = headers(&[(SESSION_ID_HEADER, &session)]).headers.unwrap();
    let caller = Caller::library();
    let messages = server.session_messages(&caller, &sent).unwrap();
    let other = Caller::library().with_key("other");
    assert_eq!(
        server.end_session(&other, &sent),
        Err(SessionError::Unknown)
    );
    server.stop();
    assert!(messages.collect::<Vec<_>>().await.len() <= 1, "no messages");
    assert_eq!(server.end_session(&caller, &sent), Ok(()));
    let ping = request("ping", &json!({}));
    let delivery = headers(&[(SESSION_ID_HEADER, &session)]);
    assert_eq!(single(connection.handle(&ping, delivery).await).0, 404);
    gateway.stop(Duration::ZERO).await;
}
