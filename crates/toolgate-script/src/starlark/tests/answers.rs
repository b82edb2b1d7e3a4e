//! Scripts and what Python says to them; the answers are CPython's.

use super::{Fake, run_script, script};

#[test]
fn scripts_give_pythons_answers() {
    let answers: Vec<(String, String)> =
        serde_json::from_str(include_str!("answers.json")).unwrap();
    let mut wrong = Vec::new();
    for (code, expected) in answers {
        let (ended, fake) = run_script(script(&code), Fake::default());
        let answer = match ended {
            Ok(_) => fake.raw,
            Err(failure) => format!("{failure:?}"),
        };
        if answer != expected {
            wrong.push(format!("{code}\n    {answer}\n    {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
