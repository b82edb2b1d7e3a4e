//! What Python programmers write: the same answer, or a hint.

use serde_json::Value as Json;

use super::{Fake, run_script, script};

#[test]
fn idioms() {
    let idioms: Vec<Json> = serde_json::from_str(include_str!("idioms.json")).unwrap();
    let mut same = 0;
    for (at, idiom) in idioms.iter().enumerate() {
        let code = idiom["code"].as_str().unwrap();
        let (ended, _) = run_script(script(code), Fake::default());
        match ended {
            Ok(value) if value.clone().unwrap_or_default() == idiom["expect"] => same += 1,
            Ok(value) => println!("{at} DIFFERENT {} {value:?}", idiom["name"]),
            Err(failure) => println!("{at} {} {failure:?}", idiom["name"]),
        }
    }
    println!("{same}");
}
