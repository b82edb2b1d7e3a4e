//! Results, printed output, failure locations, and JSON conversion in both directions.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{FailureKind, FakeHost, failure, run_script, script, text, value};

fn run_printing(code: &str) -> (Option<Json>, String) {
    let (result, host) = run_script(script(code), FakeHost::default());
    (result.unwrap(), host.printed)
}

/// Returns a tool's result after a script passed it through.
fn round_trip(answer: &str) -> String {
    let code = format!("result = youtube.raw(json={})", json!(answer));
    text(&code)
}

#[test]
fn result_is_the_variable_or_the_last_expression() {
    assert_eq!(value("result = 1\n2"), 1);
    assert_eq!(value("x = 1\nx + 1"), 2);
    assert_eq!(value("result = None\n2"), Json::Null);
    assert_eq!(
        run_printing("print('a', 1, [None, 'b'])\nprint('c', end='')\nprint(1, 2, sep='-')"),
        (None, "a 1 [None, 'b']\nc1-2\n".to_owned())
    );
    assert_eq!(run_printing("x = 1"), (None, String::new()));
    assert_eq!(
        text("result = (1, 'a', set([2]), range(3), {1: True, None: 2})"),
        r#"[1,"a",[2],[0,1,2],{"1":true,"null":2}]"#
    );
    assert!(failure("result = len").message.contains("is not data"));
    assert!(
        failure("result = {(1, 2): 3}")
            .message
            .contains("cannot be a JSON key")
    );
    assert!(
        failure("result = float('inf')")
            .message
            .contains("not a JSON number")
    );
}

#[test]
fn numbers_round_trip_exactly() {
    for number in [
        "5.0",
        "1.5",
        "12345678901234567890123",
        "-1",
        "9007199254740993",
        "0.1",
        "-0.0",
        "1e+100",
        "1e-07",
    ] {
        assert_eq!(round_trip(number), number);
    }
    assert_eq!(round_trip("1E2"), "100.0");
    assert_eq!(round_trip("[1,1.0,true]"), "[1,1.0,true]");
    assert_eq!(
        text(
            "youtube.raw(json='12345678901234567890')[0:0] if False else youtube.raw(json='12345678901234567890') + 1"
        ),
        "12345678901234567891"
    );
    let failure = failure("youtube.raw(json='[1e999]')");
    assert!(
        failure.message.contains("`1e999` is too large"),
        "{failure:?}"
    );
    assert!(matches!(failure.kind, FailureKind::Tool { .. }));
    assert_eq!(value("attempt(lambda: json.loads('1e999'))['ok']"), false);
}

#[test]
fn key_order_and_strings_round_trip() {
    assert_eq!(
        round_trip(r#"{"z":1,"a":{"y":[],"b":{}}}"#),
        r#"{"z":1,"a":{"y":[],"b":{}}}"#
    );
    assert_eq!(
        round_trip(r#"{"$serde_json::private::Number":"1"}"#),
        r#"{"$serde_json::private::Number":"1"}"#
    );
    assert_eq!(
        round_trip("\"a\\u0000\\ud83d\\ude00\\n\\u00e9/\""),
        "\"a\\u0000😀\\né/\""
    );
    assert_eq!(round_trip("\"\\ud800x\""), "\"\u{fffd}x\"");
}

#[test]
fn invalid_json_is_rejected() {
    for text in [
        "",
        "{",
        "[1,]",
        "{\"a\":}",
        "01",
        "1.",
        "1e",
        "nul",
        "\"a",
        "\"\\x\"",
        "[1] 2",
        "{a:1}",
        "'a'",
        "NaN",
        "\"\\u12\"",
        "\"a\nb\"",
        "+1",
        ".5",
    ] {
        let code = format!("attempt(lambda: json.loads({}))['ok']", json!(text));
        assert_eq!(value(&code), false, "{text}");
    }
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    assert_eq!(
        value(&format!("attempt(lambda: json.loads('{deep}'))['ok']")),
        false
    );
}

#[test]
fn fences_indentation_and_line_endings_are_accepted() {
    assert_eq!(value("```python\nx = 1\nresult = x\n```\nIt is done."), 1);
    assert_eq!(value("\u{feff}result = 1\r\nresult += 1\r\n"), 2);
    assert_eq!(value("    x = 1\n    if x:\n        result = 2\n"), 2);
    let failed = failure("\n```starlark\n  x = 1\n  y = x + z\n```");
    assert_eq!((failed.line, failed.column), (Some(4), Some(11)));
    assert_eq!(value(""), Json::Null);
    assert_eq!(value("result = 'youtube'\nyoutube = 1"), "youtube");
}

#[test]
fn failures_report_their_location() {
    let failed = failure("x = 1\nwhile x:\n    pass");
    assert_eq!(
        (failed.kind, failed.line, failed.column),
        (FailureKind::Syntax, Some(2), Some(1))
    );
    let failed = failure("def f(d):\n    return d['k']\ndef g():\n    return f({})\nresult = g()");
    assert_eq!((failed.kind, failed.line), (FailureKind::Runtime, Some(2)));
    assert!(
        failed
            .message
            .ends_with("(`f` called at line 4, `g` called at line 5)"),
        "{}",
        failed.message
    );
    assert!(failed.hints[0].contains("d.get(key)"), "{:?}", failed.hints);
    let failed = failure("x = [1, 2]\nfail('no', x)");
    assert_eq!(
        (failed.message.as_str(), failed.line),
        ("no [1, 2]", Some(2))
    );
    let failed = failure("x = int('a')");
    assert_eq!((failed.kind, failed.line), (FailureKind::Runtime, Some(1)));
    assert_eq!(failure("load('a', 'b')").kind, FailureKind::Syntax);
}

#[test]
fn annotations_are_not_checked() {
    let code = "def f(a: list[dict[str, Any]], b: Optional[int] = None, *c: int, **d: str) -> Dict[str, List[int]]:\n    x: tuple[int, ...] = 5\n    return [a, b, x]\nresult = f(1, 'b')";
    assert_eq!(text(code), r#"[1,"b",5]"#);
    let failed = failure("def f(a: Union[str, int], b: int = 1) -> str:\n    return a");
    assert_eq!(failed.hints, ["write `def f(a, b=1):`"]);
    let failed = failure("x: tuple[int, str] = (1, 'a')");
    assert_eq!(failed.hints, ["write `x = (1, 'a')`"]);
}

fn any_json() -> impl Strategy<Value = Json> {
    let number = prop_oneof![
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_filter_map("finite", |float| Some(Json::from(float))
            .filter(|_| float.is_finite())),
        "[1-9][0-9]{0,60}".prop_map(|digits| serde_json::from_str(&digits).unwrap()),
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        number,
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn json_round_trips(json in any_json()) {
        let round_trip: Json = serde_json::from_str(&round_trip(&json.to_string())).unwrap();
        prop_assert!(same(&round_trip, &json), "{round_trip} {json}");
    }

    #[test]
    fn arbitrary_text_never_panics(code in "[a-z0-9 \\n\"'(){}\\[\\]:=+*,.%f#@<>!-]{0,80}") {
        let (result, _) = run_script(script(&code), FakeHost::default());
        if let Err(failure) = result {
            prop_assert_ne!(failure.message, "the script engine crashed");
        }
    }
}

/// Compares values, with floats by value: `1e5` equals `100000.0`.
fn same(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(a), Json::Number(b)) => {
            let float = |text: &str| text.contains(['.', 'e', 'E']);
            let (a, b) = (a.to_string(), b.to_string());
            a == b
                || (float(&a)
                    && float(&b)
                    && a.parse::<f64>().unwrap() == b.parse::<f64>().unwrap())
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        (a, b) => a == b,
    }
}
