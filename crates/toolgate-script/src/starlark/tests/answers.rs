//! Expressions and what Python says to them.

use super::{Fake, run_script, script};

#[test]
fn expressions_give_pythons_answers() {
    let answers: Vec<(String, String)> =
        serde_json::from_str(include_str!("answers.json")).unwrap();
    let mut wrong = Vec::new();
    for (expression, expected) in answers {
        let (ended, _) = run_script(script(&format!("result = {expression}")), Fake::default());
        let answer = match ended {
            Ok(value) => value.unwrap_or_default().to_string(),
            Err(failure) => format!("{failure:?}"),
        };
        if answer != expected {
            wrong.push(format!("{expression}\n    {answer}\n    {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
