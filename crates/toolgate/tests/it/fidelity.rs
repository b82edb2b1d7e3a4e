//! User data passes through the gateway byte for byte.

use toolgate::result::Block;
use toolgate_core::ToolId;
use toolgate_testkit::HttpZoo;

use crate::support::{call, http_server, start_settled, stdio_zoo, stop};

const ODD: &str = r#"{"z": 18446744073709551617, "a":[1e400 ,0.1,-0.0, 1E+2, 100000000000000000000000.0],"é":"\u00e9","b":1, "":{"nested":{"b":1,"a":2}}}"#;

#[tokio::test]
async fn arguments_results_and_definitions_are_preserved() {
    let web = HttpZoo::start(&["--era", "modern"]);
    let legacy_web = HttpZoo::start(&["--sessions", "--json"]);
    let toml = [
        stdio_zoo("legacy", &[]),
        stdio_zoo("modern", &["--era", "modern"]),
        http_server("web", &web.url()),
        http_server("legacy_web", &legacy_web.url()),
    ]
    .concat();
    let gateway = start_settled(&toml).await;
    for server in ["legacy", "modern", "web", "legacy_web"] {
        let outcome = call(&gateway, &format!("{server}.echo"), ODD)
            .await
            .unwrap();
        let [Block::Text(received)] = &outcome.result.blocks()[..] else {
            panic!("one text block")
        };
        assert_eq!(received, ODD, "{server} received different arguments");
        let raw = outcome.result.raw().get();
        assert!(
            raw.contains(&format!(r#""arguments":{ODD}"#))
                || raw.contains(&format!(r#""arguments": {ODD}"#)),
            "{raw}"
        );
        assert!(
            raw.contains(r#""x-zoo":-0.0"#) || raw.contains(r#""x-zoo": -0.0"#),
            "unknown result fields must be preserved: {raw}"
        );

        let id: ToolId = outcome.tool;
        let catalog = gateway.catalog();
        let definition = catalog.tool(&id).unwrap().tool.definition.get();
        assert!(
            definition.contains("[18446744073709551617,1e400,0.1,-0.0]"),
            "{definition}"
        );
    }
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
