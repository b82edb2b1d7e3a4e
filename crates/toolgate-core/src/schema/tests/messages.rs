//! Messages for models, over schemas like those of real tools.

use super::*;

fn read_file() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "tail": {"type": "number", "description": "the last lines"},
            "head": {"type": "number"},
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

fn create_issue() -> Value {
    json!({
        "type": "object",
        "properties": {
            "owner": {"type": "string", "minLength": 1},
            "repo": {"type": "string", "pattern": "^[a-z-]+$"},
            "title": {"type": "string", "maxLength": 5},
            "labels": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": true},
            "milestone": {"type": ["integer", "null"], "minimum": 1},
            "state": {"enum": ["open", "closed"]},
            "assignees": {"type": "array", "items": {"$ref": "#/$defs/user"}},
        },
        "required": ["owner", "repo", "title"],
        "$defs": {"user": {
            "type": "object",
            "properties": {"login": {"type": "string"}, "roles": {"type": "array", "items": {"enum": ["a", "b"]}}},
            "required": ["login"],
            "additionalProperties": false,
        }},
    })
}

fn draw() -> Value {
    json!({
        "type": "object",
        "properties": {
            "shape": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
                {"$ref": "#/$defs/square"},
            ]},
            "color": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "target": {"anyOf": [
                {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
                {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
                {"type": "number"},
            ]},
            "password": {"type": "string", "maxLength": 3},
            "options": {"type": "object", "properties": {"apiKey": {"type": "number"}}},
        },
        "$defs": {"square": {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]}},
    })
}

fn check(schema: &Value, table: &[(&str, &str)]) {
    for (arguments, expected) in table {
        let text = message(schema, arguments);
        let text = text
            .strip_prefix("the arguments do not match the tool's schema: ")
            .unwrap();
        let (problems, _) = text.split_once(" The tool takes").unwrap();
        let problems = problems.strip_suffix('.').unwrap_or(problems);
        assert_eq!(problems, *expected, "{arguments}");
    }
}

#[test]
fn problems_of_a_file_reading_tool() {
    assert!(is_valid(
        &read_file(),
        r#"{"path": "/etc/hosts", "tail": 3}"#
    ));
    check(
        &read_file(),
        &[
            ("{}", "`path` is missing"),
            (
                r#"{"path": 7}"#,
                "`path` must be a string, not a number (7)",
            ),
            (
                r#"{"path": "a", "tail": "2"}"#,
                "`tail` must be a number, not a string (\"2\")",
            ),
            (
                r#"{"pth": "a"}"#,
                "`path` is missing; unknown argument `pth`, did you mean `path`?",
            ),
            (r#"{"path": "a", "zzz": 1}"#, "unknown argument `zzz`"),
            (
                r#"{"path": null, "head": []}"#,
                "`path` must be a string, not null; `head` must be a number, not an empty array",
            ),
        ],
    );
    assert_eq!(
        message(&read_file(), "{}"),
        "the arguments do not match the tool's schema: `path` is missing. \
         The tool takes: path: string (required), tail: number, head: number"
    );
}

#[test]
fn problems_of_an_issue_creating_tool() {
    let good = r#"{"owner": "o", "repo": "r", "title": "t", "milestone": null, "labels": ["a"]}"#;
    assert!(is_valid(&create_issue(), good));
    let with = |text: &str| format!(r#"{{"owner": "o", "repo": "r", "title": "t", {text}}}"#);
    let table = [
        (
            r#""labels": []"#,
            "`labels` must have at least 1 item, not 0",
        ),
        (
            r#""labels": ["a", "a"]"#,
            "`labels` must not contain the same item twice",
        ),
        (
            r#""labels": ["a", 1]"#,
            "`labels[1]` must be a string, not a number (1)",
        ),
        (
            r#""labels": "a""#,
            "`labels` must be an array, not a string (\"a\")",
        ),
        (
            r#""labels": "[\"a\"]""#,
            "`labels` must be an array, not a JSON string; send the array itself, without quotes around it",
        ),
        (
            r#""milestone": 0"#,
            "`milestone` must be at least 1, not a number (0)",
        ),
        (
            r#""milestone": "1""#,
            "`milestone` must be an integer or null, not a string (\"1\")",
        ),
        (
            r#""state": "opne""#,
            "`state` must be \"open\" or \"closed\" (did you mean \"open\"?), not a string (\"opne\")",
        ),
        (
            r#""assignees": [{"login": "a"}, {"roles": ["a", "c"], "logn": 1}]"#,
            "`assignees[1].login` is missing; unknown argument `assignees[1].logn`, did you mean `login`?; `assignees[1].roles[1]` must be \"a\" or \"b\", not a string (\"c\")",
        ),
    ];
    for (text, expected) in table {
        check(&create_issue(), &[(&with(text), expected)]);
    }
    check(
        &create_issue(),
        &[(
            r#"{"owner": "", "repo": "R 1", "title": "too long"}"#,
            "`owner` must have at least 1 character, not an empty string; \
             `repo` must match the pattern `^[a-z-]+$`, not a string (\"R 1\"); \
             `title` must have at most 5 characters, not a string (\"too long\")",
        )],
    );
    assert!(
        message(&create_issue(), "{}").ends_with(
            "The tool takes: owner: string (required), repo: string (required), \
             title: string (required), labels: string[], milestone: integer | null, \
             state: \"open\" | \"closed\", assignees: {login, roles?}[]"
        ),
        "{}",
        message(&create_issue(), "{}")
    );
}

#[test]
fn problems_name_the_intended_alternative() {
    assert!(is_valid(
        &draw(),
        r#"{"shape": {"kind": "square", "side": 1}, "color": null}"#
    ));
    check(
        &draw(),
        &[
            (
                r#"{"shape": {"kind": "circle"}}"#,
                "`shape.radius` is missing",
            ),
            (
                r#"{"shape": {"kind": "square", "side": "1"}}"#,
                "`shape.side` must be a number, not a string (\"1\")",
            ),
            (
                r#"{"shape": {"kind": "oval"}}"#,
                "`shape.kind` must be \"circle\" or \"square\", not a string (\"oval\")",
            ),
            (
                r#"{"shape": {"side": 1}}"#,
                "`shape.kind` is missing; it must be \"circle\" or \"square\"",
            ),
            (
                r#"{"shape": 1}"#,
                "`shape` must be {kind: \"circle\", radius} or {kind: \"square\", side}, not a number (1)",
            ),
            (
                r#"{"color": 1}"#,
                "`color` must be string or null, not a number (1)",
            ),
            (
                r#"{"target": {}}"#,
                "`target` must be one of: {path} (but `target.path` is missing), {url} (but `target.url` is missing)",
            ),
        ],
    );
}

#[test]
fn secrets_are_not_shown() {
    check(
        &draw(),
        &[
            (
                r#"{"password": "hunter2"}"#,
                "`password` must have at most 3 characters, not a string",
            ),
            (
                r#"{"options": {"apiKey": "sk-1"}}"#,
                "`options.apiKey` must be a number, not a string",
            ),
            (
                r#"{"options": "{\"password\": \"x\"}"}"#,
                "`options` must be an object, not a JSON string; send the object itself, without quotes around it",
            ),
            (
                r#"{"color": {"password": "x"}}"#,
                "`color` must be string or null, not an object",
            ),
        ],
    );
}

#[test]
fn rules_between_arguments_are_explained() {
    let either = json!({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(
        &either,
        &[(
            "{}",
            "the object must be one of: {a} (but `a` is missing), {b} (but `b` is missing)",
        )],
    );
    let condition = json!({
        "properties": {"mode": {"enum": ["x", "y"]}, "level": {"type": "integer"}},
        "if": {"properties": {"mode": {"const": "x"}}, "required": ["mode"]},
        "then": {"required": ["level"]},
    });
    assert!(is_valid(&condition, r#"{"mode": "y"}"#));
    check(&condition, &[(r#"{"mode": "x"}"#, "`level` is missing")]);
    let dependent = json!({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}});
    check(&dependent, &[(r#"{"a": 1}"#, "`b` is missing")]);
    let closed = json!({
        "allOf": [{"properties": {"path": {"type": "string"}}}],
        "properties": {"mode": {}},
        "unevaluatedProperties": false,
    });
    check(
        &closed,
        &[(
            r#"{"pth": 1}"#,
            "unknown argument `pth`, did you mean `path`?",
        )],
    );
    let both = json!({"properties": {"n": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}});
    check(
        &both,
        &[(
            r#"{"n": 1}"#,
            "`n` must match exactly one of its alternatives, but matches number or integer",
        )],
    );
    let never = json!({"properties": {"n": {"not": {"type": "string"}}, "old": false}});
    check(
        &never,
        &[
            (r#"{"n": ""}"#, "`n` must not be string"),
            (r#"{"old": 1}"#, "`old` is not allowed"),
        ],
    );
}

#[test]
fn tool_without_arguments_is_named_as_such() {
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    assert_eq!(
        message(&none, r#"{"a": 1}"#),
        "the arguments do not match the tool's schema: unknown argument `a`. The tool takes no arguments"
    );
}

#[test]
fn messages_are_bounded_and_on_one_line() {
    let name = format!("a\nb\u{202e}`{}", "x".repeat(100));
    let mut properties = serde_json::Map::new();
    for index in 0..200 {
        properties.insert(
            format!("{index}{name}"),
            json!({"enum": [name, name.to_uppercase()]}),
        );
    }
    let required: Vec<String> = properties.keys().cloned().collect();
    let schema =
        json!({"properties": properties, "required": required, "additionalProperties": false});
    let wrong: serde_json::Map<String, Value> = (0..100)
        .map(|index| (format!("{index}\n{name}"), json!(name)))
        .collect();
    let text = message(&schema, &Value::Object(wrong).to_string());
    assert!(text.chars().count() < 2000, "{text}");
    assert!(!text.contains(['\n', '\u{202e}']), "{text}");
    assert!(text.contains("; and more. The tool takes: "), "{text}");

    let many = json!({"properties": {"l": {"items": {"type": "string"}}}});
    let violation = compile(&many)
        .unwrap()
        .check(&json!({"l": [1, 2, 3, 4, 5, 6, 7, 8, 9]}));
    let violation = violation.unwrap_err();
    assert_eq!(violation.problems.len(), 8);
    assert!(violation.has_more);
}
