//! What Python programmers write: the same answer, or a hint that mends it.

use serde::Deserialize;
use serde_json::Value as Json;

use super::{Failure, Fake, run_script, script};

#[derive(Deserialize)]
struct Idiom {
    name: String,
    code: String,
    /// What Python answers; `DENY` if nothing may.
    expect: Json,
    outcome: Outcome,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// Python's answer.
    Python,
    /// An answer of ours, where Python has none that could be compared.
    Ours(Json),
    /// A failure with a hint that says so.
    Hint(String),
    /// The same, and the script gives Python's answer once its lines are written as the hints say.
    Mended(String),
}

fn idioms() -> Vec<Idiom> {
    serde_json::from_str(include_str!("idioms.json")).unwrap()
}

fn run(code: &str) -> Result<Json, Failure> {
    let (ended, _) = run_script(script(code), Fake::default());
    ended.map(Option::unwrap_or_default)
}

/// Writes lines as their hints say, until there is no failure or no such hint.
fn mended(code: &str) -> Option<Json> {
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
        if hint.starts_with("leave the line out") {
            lines[number] = String::new();
        } else {
            let (_, written) = hint.split_once("write `")?;
            let written = written.strip_suffix('`')?;
            let written = written.replace("` and then `", &format!("\n{indent}"));
            lines[number] = indent + &written;
        }
        code = lines.join("\n");
    }
    None
}

#[test]
fn idioms_give_pythons_answer_or_a_hint() {
    let mut wrong = Vec::new();
    for idiom in idioms() {
        let ended = run(&idiom.code);
        let right = match (&idiom.outcome, &ended) {
            (Outcome::Python, Ok(value)) => *value == idiom.expect,
            (Outcome::Ours(ours), Ok(value)) => value == ours,
            (Outcome::Hint(text), Err(failure)) => failure.hints.concat().contains(text),
            (Outcome::Mended(text), Err(failure)) => {
                failure.hints.concat().contains(text)
                    && mended(&idiom.code).as_ref() == Some(&idiom.expect)
            }
            _ => false,
        };
        if !right {
            wrong.push(format!("{}: {:?} {ended:?}", idiom.name, idiom.outcome));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn enough_idioms_give_pythons_answer() {
    let idioms = idioms();
    let same = idioms.iter().filter(|idiom| {
        let denied = idiom.expect == "DENY" && run(&idiom.code).is_err();
        denied || matches!(idiom.outcome, Outcome::Python)
    });
    assert!(same.count() >= 85);
}
