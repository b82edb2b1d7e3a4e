//! Header checks: the headers that a modern request repeats from its body, and `Host` and
//! `Origin` against DNS rebinding.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::catalog::ZooCatalog;
use super::rpc::{INVALID_PARAMS, Request, ZooError};

const HEADER_MISMATCH: i64 = -32020;

/// Compares the headers with the body; the error names the header that differs.
pub(crate) fn check(
    headers: &HeaderMap,
    request: &Request,
    catalog: &ZooCatalog,
) -> Result<(), ZooError> {
    let Request { method, params, .. } = request;
    let version = request.declared_version().unwrap_or_default();
    expect(headers, "MCP-Protocol-Version", Encoding::Plain, version)?;
    expect(headers, "Mcp-Method", Encoding::Plain, method)?;
    let name = match method.as_str() {
        "tools/call" | "prompts/get" => params.name.as_deref(),
        "resources/read" => params.uri.as_deref(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.task_id.as_deref(),
        _ => None,
    };
    if let Some(name) = name {
        expect(headers, "Mcp-Name", Encoding::MaybeBase64, name)?;
    }
    if let ("tools/call", Some(name)) = (method.as_str(), name) {
        // An unknown tool repeats nothing in headers; the call itself reports it.
        let schema = catalog.tool_schema(name).unwrap_or(Value::Null);
        let arguments: Value = serde_json::from_str(request.arguments())
            .map_err(|error| ZooError::new(INVALID_PARAMS, error.to_string()))?;
        check_parameters(headers, &schema, &arguments)?;
    }
    Ok(())
}

/// Returns whether `Host` or `Origin` names another machine, as in a DNS rebinding attack.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    [HOST, ORIGIN].iter().any(|name| {
        headers
            .get(name)
            .is_some_and(|value| !value.to_str().is_ok_and(is_local))
    })
}

fn is_local(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[derive(Clone, Copy)]
enum Encoding {
    Plain,
    MaybeBase64,
}

/// Checks every property of the schema that a header must repeat.
fn check_parameters(headers: &HeaderMap, schema: &Value, value: &Value) -> Result<(), ZooError> {
    let Some(properties) = schema["properties"].as_object() else {
        return Ok(());
    };
    for (key, property) in properties {
        let value = &value[key.as_str()];
        if let Some(suffix) = property["x-mcp-header"].as_str() {
            let name = format!("Mcp-Param-{suffix}");
            match value {
                Value::Null if headers.contains_key(&name) => {
                    return Err(mismatch(&name, "is present, but the argument is not"));
                }
                Value::Null => {}
                Value::String(text) => expect(headers, &name, Encoding::MaybeBase64, text)?,
                other => expect(headers, &name, Encoding::MaybeBase64, &other.to_string())?,
            }
        }
        check_parameters(headers, property, value)?;
    }
    Ok(())
}

fn expect(headers: &HeaderMap, name: &str, encoding: Encoding, body: &str) -> Result<(), ZooError> {
    let header = headers
        .get(name)
        .ok_or_else(|| mismatch(name, "is missing"))?
        .to_str()
        .map_err(|_| mismatch(name, "has invalid characters"))?;
    let header = match encoding {
        Encoding::Plain => header.to_owned(),
        Encoding::MaybeBase64 => {
            decode_value(header).ok_or_else(|| mismatch(name, "is not valid Base64"))?
        }
    };
    if header == body {
        Ok(())
    } else {
        Err(mismatch(
            name,
            &format!("is `{header}`, but the body has `{body}`"),
        ))
    }
}

fn decode_value(header: &str) -> Option<String> {
    let inner = header
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inner {
        None => Some(header.to_owned()),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
    }
}

fn mismatch(name: &str, problem: &str) -> ZooError {
    ZooError::new(
        HEADER_MISMATCH,
        format!("Header mismatch: `{name}` {problem}"),
    )
}
