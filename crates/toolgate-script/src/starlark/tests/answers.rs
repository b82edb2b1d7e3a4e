//! Scripts whose expected results come from CPython.

use super::{FakeHost, run_script, script};

#[test]
fn scripts_match_cpython() {
    let cases: Vec<(String, String)> = serde_json::from_str(include_str!("answers.json")).unwrap();
    let mut mismatches = Vec::new();
    for (code, expected) in cases {
        let (result, host) = run_script(script(&code), FakeHost::default());
        let actual = match result {
            Ok(_) => host.raw,
            Err(failure) => format!("{failure:?}"),
        };
        if actual != expected {
            mismatches.push(format!("{code}\n    {actual}\n    {expected}"));
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}
