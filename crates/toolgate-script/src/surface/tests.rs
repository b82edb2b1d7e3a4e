use super::*;
use crate::tokens;

#[test]
fn the_texts_are_small() {
    let sent: Vec<String> = TOOLS.iter().map(Definition::for_chat).collect();
    let sent = format!("[{}]", sent.join(","));
    let value: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(value[3]["function"]["name"], EXECUTE);
    assert!(sent.chars().count() <= 3000, "{}", sent.chars().count());
    assert!(tokens::count(&sent) <= 600, "{}", tokens::count(&sent));
}

#[test]
fn what_a_model_sees_of_a_run() {
    let called = |tool: &str, succeeded, failed| Called {
        tool: tool.to_owned(),
        succeeded,
        failed,
    };
    let shown = Shown::default();
    assert_eq!(
        answer(
            Some("{\"a\":1}"),
            "",
            &[called("crm.get", 6, 0), called("fs.write", 0, 1)],
            shown
        ),
        "{\"a\":1}\ncalls: crm.get×6, fs.write failed"
    );
    assert_eq!(
        answer(
            None,
            "hello\ncalls: none\n",
            &[called("crm.get", 1, 0), called("b.c", 2, 1)],
            shown
        ),
        "calls: crm.get, b.c×3 (1 failed)\nprinted:\nhello\ncalls: none"
    );
    assert_eq!(
        answer(None, "\n", &[], shown),
        "no result: assign to `result` or print()"
    );
    let small = Shown {
        result: 4,
        printed: 3,
        calls: 1,
    };
    assert_eq!(
        answer(
            Some("\"ééé\""),
            "abcdef",
            &[called("a.b", 1, 0), called("a.c", 1, 0)],
            small
        ),
        "\"é… (5 more bytes; assign less to `result`)\ncalls: a.b, and 1 more tools\nprinted:\nabc… (3 more bytes; print less)"
    );
}
