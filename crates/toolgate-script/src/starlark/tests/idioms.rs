//! Python idioms: each gives Python's result, or a hint that fixes the script.

use serde::Deserialize;
use serde_json::Value as Json;

use super::{FakeHost, ScriptFailure, run_script, script};

#[derive(Deserialize)]
struct Idiom {
    name: String,
    code: String,
    /// Python's result, or `DENY` if the script must fail.
    expect: Json,
    outcome: Outcome,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// The result equals Python's.
    Python,
    /// The result differs from Python's.
    Differs(Json),
    /// The script fails with this hint.
    Hint(String),
    /// The script fails with this hint and gives Python's result once all hints are applied.
    FixedByHint(String),
}

fn idioms() -> Vec<Idiom> {
    serde_json::from_str(include_str!("idioms.json")).unwrap()
}

fn run(code: &str) -> Result<Json, ScriptFailure> {
    let (result, _) = run_script(script(code), FakeHost::default());
    result.map(Option::unwrap_or_default)
}

/// Applies hints to a script until it succeeds or no hint applies.
fn apply_hints(code: &str) -> Option<Json> {
    let mut code = code.to_owned();
    for _ in 0..8 {
        let failure = match run(&code) {
            Ok(value) => return Some(value),
            Err(failure) => failure,
        };
        let number = usize::try_from(failure.line?).unwrap() - 1;
        let hint = failure.hints.first()?;
        let mut lines: Vec<String> = code.split('\n').map(str::to_owned).collect();
        let line = &lines[number];
        let indent = line[..line.len() - line.trim_start().len()].to_owned();
        if hint.starts_with("remove this line") {
            lines[number] = String::new();
        } else {
            let (_, replacement) = hint.split_once("write `")?;
            let replacement = replacement.strip_suffix('`')?;
            let replacement = replacement.replace("` and then `", &format!("\n{indent}"));
            lines[number] = indent + &replacement;
        }
        code = lines.join("\n");
    }
    None
}

#[test]
fn idioms_match_python_or_get_a_hint() {
    let mut mismatches = Vec::new();
    for idiom in idioms() {
        let result = run(&idiom.code);
        let is_expected = match (&idiom.outcome, &result) {
            (Outcome::Python, Ok(value)) => *value == idiom.expect,
            (Outcome::Differs(expected), Ok(value)) => value == expected,
            (Outcome::Hint(text), Err(failure)) => failure.hints.concat().contains(text),
            (Outcome::FixedByHint(text), Err(failure)) => {
                failure.hints.concat().contains(text)
                    && apply_hints(&idiom.code).as_ref() == Some(&idiom.expect)
            }
            _ => false,
        };
        if !is_expected {
            mismatches.push(format!("{}: {:?} {result:?}", idiom.name, idiom.outcome));
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn most_idioms_match_python() {
    let idioms = idioms();
    let matching = idioms.iter().filter(|idiom| {
        let is_denied = idiom.expect == "DENY" && run(&idiom.code).is_err();
        is_denied || matches!(idiom.outcome, Outcome::Python)
    });
    assert!(matching.count() >= 85);
}
