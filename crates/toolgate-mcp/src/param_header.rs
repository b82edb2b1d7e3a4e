//! Arguments that a modern HTTP server wants to see as headers too (`x-mcp-header` in a tool's
//! input schema), and the encoding of header values that are not plain.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate_core::catalog::{Tool, ToolView};
use toolgate_core::json::may_say;

use crate::serve::decoded;

const KEYWORD: &str = "x-mcp-header";

/// An annotated property: where it stands in the arguments, and its header.
#[derive(Debug)]
struct Annotated {
    path: Vec<String>,
    header: HeaderName,
}

/// Whether a tool may have annotations; false is certain.
pub fn may_have(tool: &Tool) -> bool {
    may_say(tool.definition.get(), KEYWORD)
}

/// Says what is wrong with a tool's annotations; such a tool must not be offered.
pub(crate) fn check(tool: &ToolView<'_>) -> Result<(), String> {
    annotations(tool).map(drop)
}

/// Adds the header that repeats what a request is about.
pub(crate) fn add_name(name: &str, headers: &mut HeaderMap) {
    const NAME: HeaderName = HeaderName::from_static("mcp-name");
    headers.insert(NAME, encoded(name));
}

/// Holds the headers that a client sent against the arguments that they repeat.
pub fn compare(tool: &ToolView<'_>, arguments: &RawValue, sent: &HeaderMap) -> Result<(), String> {
    let mut expected = HeaderMap::new();
    add(tool, arguments, &mut expected);
    for Annotated { header, .. } in annotations(tool).unwrap_or_default() {
        let read = |headers: &HeaderMap| {
            let value = headers.get(&header)?.to_str().ok()?;
            Some(decoded(value.trim()))
        };
        let told = match (read(&expected), sent.contains_key(&header), read(sent)) {
            (None, false, _) => continue,
            (Some(expected), true, Some(sent)) if sent.is_some() && sent == expected => continue,
            (Some(_), false, _) => "is missing",
            _ => "says something else than the body",
        };
        return Err(format!("`{header}` {told}"));
    }
    Ok(())
}

/// Adds `Mcp-Name` and one header for each annotated argument that has a value.
pub(crate) fn add(tool: &ToolView<'_>, arguments: &RawValue, headers: &mut HeaderMap) {
    add_name(&tool.name, headers);
    let annotated = annotations(tool).unwrap_or_default();
    if annotated.is_empty() {
        return;
    }
    let arguments: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
    for Annotated { path, header } in annotated {
        let value = path
            .iter()
            .try_fold(&arguments, |value, step| value.get(step));
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(scalar @ (Value::Bool(_) | Value::Number(_))) => scalar.to_string(),
            _ => continue,
        };
        headers.insert(header, encoded(&text));
    }
}

fn annotations(tool: &ToolView<'_>) -> Result<Vec<Annotated>, String> {
    let Some(schema) = tool
        .input_schema
        .filter(|schema| schema.get().contains(KEYWORD))
    else {
        return Ok(Vec::new());
    };
    let schema: Value = serde_json::from_str(schema.get()).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    let mut places = 0;
    properties(&schema, &mut Vec::new(), &mut found)?;
    count(&schema, &mut places);
    if places != found.len() {
        return Err(format!(
            "`{KEYWORD}` stands where no argument can be found by its path"
        ));
    }
    for (index, one) in found.iter().enumerate() {
        if found[..index]
            .iter()
            .any(|other: &Annotated| other.header == one.header)
        {
            return Err(format!("two arguments want the header `{}`", one.header));
        }
    }
    Ok(found)
}

/// Walks the properties of a schema, and of those that are objects themselves.
fn properties(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<Annotated>,
) -> Result<(), String> {
    let empty = Map::new();
    for (name, property) in schema["properties"].as_object().unwrap_or(&empty) {
        path.push(name.clone());
        if let Some(annotation) = property.get(KEYWORD) {
            let header = annotation
                .as_str()
                .filter(|text| !text.is_empty())
                .and_then(|text| HeaderName::try_from(format!("mcp-param-{text}")).ok())
                .ok_or_else(|| format!("`{KEYWORD}` of `{name}` is no header name"))?;
            if !matches!(
                property["type"].as_str(),
                Some("string" | "integer" | "boolean")
            ) {
                return Err(format!(
                    "`{KEYWORD}` of `{name}` needs type string, integer or boolean"
                ));
            }
            found.push(Annotated {
                path: path.clone(),
                header,
            });
        }
        properties(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Counts the schemas that are annotated, wherever they stand.
fn count(value: &Value, places: &mut usize) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                match key.as_str() {
                    KEYWORD => *places += 1,
                    "default" | "const" | "enum" | "examples" => {}
                    _ => count(inner, places),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| count(item, places)),
        _ => {}
    }
}

/// A value as it is, or in base64 where a header could not carry it.
fn encoded(text: &str) -> HeaderValue {
    let odd = text.bytes().any(|byte| !(0x20..=0x7e).contains(&byte));
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let looks_wrapped = text.starts_with("=?base64?") && text.ends_with("?=");
    let plain = !odd && !padded && !looks_wrapped;
    let wrapped = || format!("=?base64?{}?=", STANDARD.encode(text));
    let value = if plain { text.to_owned() } else { wrapped() };
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
        check(&tool)?;
        let mut headers = HeaderMap::new();
        add(
            &tool,
            &serde_json::from_str::<Box<RawValue>>(arguments).unwrap(),
            &mut headers,
        );
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
    fn arguments_become_headers() {
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
        let odd = headers(schema, r#"{"region": " é"}"#).unwrap();
        assert_eq!(odd[0].1, format!("=?base64?{}?=", STANDARD.encode(" é")));
    }

    #[test]
    fn wrong_annotations_are_told() {
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
}
