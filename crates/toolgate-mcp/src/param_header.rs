//! Arguments that modern HTTP mirrors in headers (`x-mcp-header` in a tool's input schema), and the
//! base64 encoding of values that a header cannot carry.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate_core::catalog::{Tool, ToolView};
use toolgate_core::json::may_contain;

const ANNOTATION_KEYWORD: &str = "x-mcp-header";

/// An annotated property: its path in the arguments, and its header.
#[derive(Debug)]
struct HeaderAnnotation {
    path: Vec<String>,
    header: HeaderName,
}

/// Returns whether a tool may have annotations. Cheap text search; only `false` is definite.
pub fn may_have_annotations(tool: &Tool) -> bool {
    may_contain(tool.definition.get(), ANNOTATION_KEYWORD)
}

/// Validates a tool's annotations. A tool with invalid annotations must not be listed.
pub(crate) fn validate(tool: &ToolView<'_>) -> Result<(), String> {
    annotations(tool).map(drop)
}

/// Inserts the `Mcp-Name` header, which mirrors the name or URI in a request.
pub(crate) fn insert_name_header(name: &str, headers: &mut HeaderMap) {
    const NAME: HeaderName = HeaderName::from_static("mcp-name");
    headers.insert(NAME, encode_value(name));
}

/// Verifies that the headers sent by a client match the arguments they mirror. Intermediaries may
/// decide by the headers alone, so whatever cannot be verified is rejected.
pub fn verify_headers(
    tool: &ToolView<'_>,
    arguments: &RawValue,
    sent: &HeaderMap,
) -> Result<(), String> {
    let mut expected = HeaderMap::new();
    insert_headers(tool, arguments, &mut expected)?;
    for HeaderAnnotation { header, .. } in annotations(tool)? {
        let decode = |headers: &HeaderMap| {
            let value = headers.get(&header)?.to_str().ok()?;
            Some(decode_value(value.trim()))
        };
        let problem = match (decode(&expected), sent.contains_key(&header), decode(sent)) {
            (None, false, _) => continue,
            (Some(expected), true, Some(sent)) if sent.is_some() && sent == expected => continue,
            (Some(_), false, _) => "is missing",
            _ => "does not match the body",
        };
        return Err(format!("`{header}` {problem}"));
    }
    Ok(())
}

/// Inserts `Mcp-Name` and one header for each annotated argument that has a value. Fails on invalid
/// annotations, and on arguments that are nested too deeply to be searched.
pub fn insert_headers(
    tool: &ToolView<'_>,
    arguments: &RawValue,
    headers: &mut HeaderMap,
) -> Result<(), String> {
    insert_name_header(&tool.name, headers);
    let annotated = annotations(tool)?;
    if annotated.is_empty() {
        return Ok(());
    }
    let arguments: Value = serde_json::from_str(arguments.get())
        .map_err(|error| format!("arguments cannot be mirrored in headers: {error}"))?;
    for HeaderAnnotation { path, header } in annotated {
        let value = path
            .iter()
            .try_fold(&arguments, |value, step| value.get(step));
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(scalar @ (Value::Bool(_) | Value::Number(_))) => scalar.to_string(),
            _ => continue,
        };
        headers.insert(header, encode_value(&text));
    }
    Ok(())
}

fn annotations(tool: &ToolView<'_>) -> Result<Vec<HeaderAnnotation>, String> {
    let Some(schema) = tool
        .input_schema
        .filter(|schema| schema.get().contains(ANNOTATION_KEYWORD))
    else {
        return Ok(Vec::new());
    };
    let schema: Value = serde_json::from_str(schema.get()).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    let mut total = 0;
    collect_annotations(&schema, &mut Vec::new(), &mut found)?;
    count_annotations(&schema, &mut total);
    if total != found.len() {
        return Err(format!(
            "`{ANNOTATION_KEYWORD}` is only allowed on properties with a fixed path"
        ));
    }
    for (index, annotation) in found.iter().enumerate() {
        if found[..index]
            .iter()
            .any(|other: &HeaderAnnotation| other.header == annotation.header)
        {
            return Err(format!(
                "header `{}` is used by two arguments",
                annotation.header
            ));
        }
    }
    Ok(found)
}

/// Collects annotations from the properties of a schema, recursively.
fn collect_annotations(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderAnnotation>,
) -> Result<(), String> {
    let empty = Map::new();
    for (name, property) in schema["properties"].as_object().unwrap_or(&empty) {
        path.push(name.clone());
        if let Some(annotation) = property.get(ANNOTATION_KEYWORD) {
            let header = annotation
                .as_str()
                .filter(|text| !text.is_empty())
                .and_then(|text| HeaderName::try_from(format!("mcp-param-{text}")).ok())
                .ok_or_else(|| {
                    format!("`{ANNOTATION_KEYWORD}` of `{name}` is not a valid header name")
                })?;
            if !matches!(
                property["type"].as_str(),
                Some("string" | "integer" | "boolean")
            ) {
                return Err(format!(
                    "`{ANNOTATION_KEYWORD}` of `{name}` requires type string, integer or boolean"
                ));
            }
            found.push(HeaderAnnotation {
                path: path.clone(),
                header,
            });
        }
        collect_annotations(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Counts the annotations anywhere in a schema, to detect those that have no fixed path.
fn count_annotations(value: &Value, total: &mut usize) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                match key.as_str() {
                    ANNOTATION_KEYWORD => *total += 1,
                    "default" | "const" | "enum" | "examples" => {}
                    _ => count_annotations(inner, total),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| count_annotations(item, total)),
        _ => {}
    }
}

/// Decodes a header value, which may be wrapped in base64; `None` if the encoding is invalid.
pub fn decode_value(value: &str) -> Option<String> {
    let inner = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inner {
        None => Some(value.to_owned()),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
    }
}

/// Encodes a value as is, or in base64 if a header cannot carry it.
pub fn encode_value(text: &str) -> HeaderValue {
    let has_special = text.bytes().any(|byte| !(0x20..=0x7e).contains(&byte));
    let has_padding = text.starts_with(' ') || text.ends_with(' ');
    let looks_wrapped = text.starts_with("=?base64?") && text.ends_with("?=");
    let is_plain = !has_special && !has_padding && !looks_wrapped;
    let wrapped = || format!("=?base64?{}?=", STANDARD.encode(text));
    let value = if is_plain { text.to_owned() } else { wrapped() };
    // Printable ASCII is always a valid header value.
    HeaderValue::try_from(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(schema: &str, arguments: &str) -> Result<Vec<(String, String)>, String> {
        let raw: Box<RawValue> = serde_json::from_str(schema).unwrap();
        let tool = ToolView {
            name: "t".into(),
            input_schema: Some(&raw),
            ..ToolView::default()
        };
        validate(&tool)?;
        let mut headers = HeaderMap::new();
        insert_headers(
            &tool,
            &serde_json::from_str::<Box<RawValue>>(arguments).unwrap(),
            &mut headers,
        )?;
        headers.remove("mcp-name");
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let sent = headers.iter();
        let mut sent: Vec<_> = sent
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        sent.sort();
        Ok(sent)
    }

    #[test]
    fn annotated_arguments_become_headers() {
        let schema = r#"{"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "n": {"type": "integer", "x-mcp-header": "N"},
            "o": {"type": "object", "properties": {"deep": {"type": "boolean", "x-mcp-header": "Deep"}}}}}"#;
        let sent = headers(
            schema,
            r#"{"region": "eu west", "n": -7, "o": {"deep": true}}"#,
        )
        .unwrap();
        let expected = [
            ("mcp-param-deep", "true"),
            ("mcp-param-n", "-7"),
            ("mcp-param-region", "eu west"),
        ];
        assert_eq!(
            sent,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(headers(schema, r#"{"region": null}"#).unwrap(), []);
        let has_special = headers(schema, r#"{"region": " é"}"#).unwrap();
        assert_eq!(
            has_special[0].1,
            format!("=?base64?{}?=", STANDARD.encode(" é"))
        );
    }

    #[test]
    fn invalid_annotations_are_rejected() {
        for schema in [
            r#"{"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}"#,
            r#"{"properties": {"a": {"type": "string", "x-mcp-header": "A b"}}}"#,
            r#"{"properties": {"a": {"type": "string", "x-mcp-header": ""}}}"#,
            r#"{"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}"#,
            r#"{"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}}"#,
        ] {
            assert!(headers(schema, "{}").is_err(), "{schema}");
        }
        assert_eq!(
            headers(
                r#"{"properties": {"a": {"default": {"x-mcp-header": 1}}}}"#,
                "{}"
            )
            .unwrap(),
            []
        );
    }

    #[test]
    fn unverifiable_calls_are_rejected() {
        let verify = |schema: &str, arguments: &str| {
            let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
            let schema = raw(schema);
            let tool = ToolView {
                name: "t".into(),
                input_schema: Some(&schema),
                ..ToolView::default()
            };
            verify_headers(&tool, &raw(arguments), &HeaderMap::new())
        };
        let valid = r#"{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}"#;
        assert_eq!(verify(valid, r#"{"b": 1}"#), Ok(()));
        assert!(verify(valid, r#"{"a": "x"}"#).is_err(), "header is missing");
        let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        let arguments = format!(r#"{{"a": "x", "b": {nested}}}"#);
        assert!(
            verify(valid, &arguments).is_err(),
            "too deep to be searched"
        );
        let invalid = r#"{"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}"#;
        assert!(
            verify(invalid, r#"{"a": 1}"#).is_err(),
            "invalid annotation"
        );
    }
}
