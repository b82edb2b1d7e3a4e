//! User data passes through the engine byte for byte.

use toolgate::result::Block;

use crate::support::{call, start_settled, stdio_zoo, stop};

const ODD: &str =
    r#"{"z": 18446744073709551617, "a":[1e400 ,-0.0],"é":"\u00e9","":{"b":1, "a":2}}"#;

#[tokio::test]
async fn arguments_and_results_are_preserved() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let outcome = call(&gateway, "zoo_echo", ODD).await.unwrap();
    let [Block::Text(received)] = &outcome.result.blocks()[..] else {
        panic!("one text block")
    };
    assert_eq!(received, ODD, "the server received different arguments");
    let raw = outcome.result.raw().get();
    assert!(raw.contains(ODD), "{raw}");
    assert!(
        raw.contains(r#""x-zoo":-0.0"#),
        "unknown result fields must be preserved: {raw}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn content_blocks_of_every_kind_are_preserved() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let outcome = call(&gateway, "zoo_kinds", "{}").await.unwrap();
    let blocks = outcome.result.blocks();
    assert!(matches!(blocks[0], Block::Text(_)));
    assert!(matches!(&blocks[1], Block::Image { mime_type, .. } if mime_type == "image/png"));
    let others: Vec<&str> = blocks[2..]
        .iter()
        .map(|block| match block {
            Block::Other(raw) => raw.get(),
            block => panic!("{block:?}"),
        })
        .collect();
    for (other, kind) in others
        .iter()
        .zip(["audio", "resource_link", "resource", "x-new"])
    {
        assert!(other.contains(&format!("\"{kind}\"")), "{other}");
    }
    assert!(others[3].contains("-0.0"));
    stop(gateway).await;
}
