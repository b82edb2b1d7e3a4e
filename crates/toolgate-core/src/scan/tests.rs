//! End-to-end scans of realistic calls.

use serde_json::json;

use super::*;

/// Findings as `danger place`.
fn found(arguments: &Value) -> Vec<String> {
    scan(arguments, &Danger::ALL)
        .into_iter()
        .map(|found| format!("{} {}", found.danger.as_str(), found.place))
        .collect()
}

#[test]
fn dangers_are_found() {
    for (arguments, expected) in [
        (json!({"path": "../x"}), &["path_traversal /path"][..]),
        (json!({"path": ".."}), &["path_traversal /path"]),
        (json!({"filePath": "a/../b"}), &["path_traversal /filePath"]),
        (
            json!({"output_dir": "a\\..\\b"}),
            &["path_traversal /output_dir"],
        ),
        (
            json!({"paths": ["a", "b/.."]}),
            &["path_traversal /paths/1"],
        ),
        (json!({"source": "x/../y"}), &["path_traversal /source"]),
        (json!({"q": "../../etc/passwd"}), &["path_traversal /q"]),
        (
            json!({"options": {"a/b~c": "../x"}}),
            &["path_traversal /options/a~1b~0c"],
        ),
        (json!({"command": "ls; id"}), &["shell /command"]),
        (json!({"args": ["-c", "a && b"]}), &["shell /args/1"]),
        (json!({"shellScript": "a\nb"}), &["shell /shellScript"]),
        (
            json!({"url": "http://127.0.0.1"}),
            &["private_address /url"],
        ),
        (
            json!({"imageURLs": ["http://0x7f.1/"]}),
            &["private_address /imageURLs/0"],
        ),
        (json!({"q": "http://localhost/"}), &["private_address /q"]),
        (
            json!({"db_host": "localhost"}),
            &["private_address /db_host"],
        ),
        (
            json!({"address": "10.0.0.1"}),
            &["private_address /address"],
        ),
        (
            json!({"uri": "file:///srv/../etc"}),
            &["path_traversal /uri", "private_address /uri"],
        ),
        (
            json!({"headers": [{"value": "Bearer 0123456789abcdef0123"}]}),
            &["secret /headers/0/value"],
        ),
        (json!("../x"), &["path_traversal "]),
    ] {
        assert_eq!(found(&arguments), expected, "{arguments}");
    }
}

#[test]
fn ordinary_calls_have_no_findings() {
    for arguments in [
        json!(null),
        json!({}),
        json!({"path": "/home/me/notes.md", "limit": 10, "recursive": true}),
        json!({"path": "src/..hidden/a..b"}),
        json!({"file": "a.rs", "content": "use a; fn b() {} // see ../../docs\n let c = 1..2;"}),
        json!({"file_content": "import a from '../../a'\nimport b from '../../b'"}),
        json!({"source": "import a from '../../a'\nimport b from '../../b'"}),
        json!({"profile": "..", "message": "wait .. what"}),
        json!({"command": "cargo test -p toolgate-core"}),
        json!({"command_description": "Builds; then runs & reports"}),
        json!({"query": "SELECT a FROM b WHERE c > 1; -- `x` | $(y)"}),
        json!({"code": "if (a && b) { c = `${d}`; }"}),
        json!({"description": "Talks to localhost, 127.0.0.1 and http://10.0.0.1"}),
        json!({"url": "https://example.com/search?q=..&r=localhost"}),
        json!({"address": "10 Downing Street"}),
        json!({"address": "0x7ffe1234"}),
        json!({"server_version": "10.2.1", "ghost": "localhost"}),
        json!({"email_address": "bob@corp.internal"}),
        json!({"id": "550e8400-e29b-41d4-a716-446655440000"}),
        json!({"range": "main..feature/x", "regex": "a\\..\\b"}),
    ] {
        assert_eq!(found(&arguments), [""; 0], "{arguments}");
    }
}

#[test]
fn findings_never_quote_secrets() {
    let key = format!("tg-{}", "k3".repeat(22)[1..].to_owned());
    for arguments in [
        json!({"text": key}),
        json!({ &key: "x" }),
        json!({ &key: { "path": "../x" } }),
        json!({"url": format!("http://{key}.internal/")}),
        json!({"url": format!("http://me:{key}@localhost/")}),
    ] {
        let found = scan(&arguments, &Danger::ALL);
        assert!(found.iter().any(|found| found.danger == Danger::Secret));
        assert!(!format!("{found:?}").contains("k3k3"), "{found:?}");
    }
}

#[test]
fn findings_are_limited_per_kind() {
    let many = json!({"paths": vec!["../x"; 1000], "url": "http://localhost"});
    assert_eq!(scan(&many, &Danger::ALL).len(), MAX_FINDINGS_PER_KIND + 1);
    let found = scan(&many, &[Danger::PrivateAddress]);
    assert_eq!(
        found.len(),
        1,
        "many findings of one kind must not hide another"
    );
}

#[test]
fn danger_names_match_their_serialized_form() {
    for danger in Danger::ALL {
        assert_eq!(serde_json::to_value(danger).unwrap(), danger.as_str());
    }
}
