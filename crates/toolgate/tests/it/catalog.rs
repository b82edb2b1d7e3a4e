//! What servers offer, gathered.

use toolgate_core::catalog::Kind;

use crate::support::{SOON, call, server, settled, start, stop, zoo};

#[tokio::test]
async fn all_pages_of_all_lists() {
    for era in ["legacy", "modern"] {
        let gateway = settled(&zoo(
            "zoo",
            &["--era", era, "--tools", "250", "--page", "7"],
        ))
        .await;
        let catalog = gateway.catalog();
        let offer = catalog.offer(&server(&gateway, "zoo").server.name).unwrap();
        assert_eq!(offer.problems, []);
        assert!(catalog.tools().len() > 250, "{}", catalog.tools().len());
        assert_eq!(
            (
                offer.resources.len(),
                offer.templates.len(),
                offer.prompts.len()
            ),
            (3, 1, 2)
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn a_malformed_tool_hides_no_other_and_names_stay_usable() {
    let gateway = settled(&zoo("zoo", &["--malformed"])).await;
    let catalog = gateway.catalog();
    let offer = catalog.offer(&server(&gateway, "zoo").server.name).unwrap();
    let wrong: Vec<_> = offer
        .problems
        .iter()
        .map(|p| (p.kind, p.reason.as_str()))
        .collect();
    for reason in [
        "it is not an object",
        "it has no name",
        "its `name` is not a string",
        "its `inputSchema` is not an object",
    ] {
        assert!(
            wrong.contains(&(Kind::Tool, reason)),
            "{reason} in {wrong:?}"
        );
    }
    for entry in catalog.tools() {
        assert!(entry.alias.len() <= 64);
        assert!(
            entry
                .alias
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        );
    }
    let hostile = catalog
        .tools()
        .iter()
        .find(|entry| entry.tool.id.tool.as_str() == "../../etc/passwd");
    let alias = hostile.unwrap().alias.to_string();
    assert!(
        call(&gateway, &alias, r#"{"a":1}"#).await.is_ok(),
        "raw names go on the wire"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn subscribers_hear_of_each_new_catalog() {
    let gateway = start(&(zoo("a", &[]) + &zoo("b", &["--slow-start", "300"]))).await;
    let mut catalogs = gateway.subscribe();
    let mut generation = 0;
    let seen = tokio::time::timeout(SOON, async {
        loop {
            catalogs.changed().await.unwrap();
            let catalog = catalogs.borrow_and_update().clone();
            assert!(catalog.generation() > generation, "generations only grow");
            generation = catalog.generation();
            let servers = |name: &str| {
                catalog
                    .tools()
                    .iter()
                    .any(|e| e.tool.id.server.as_str() == name)
            };
            if servers("a") && servers("b") {
                return;
            }
        }
    });
    seen.await.expect("both servers appear");
    stop(gateway).await;
}

#[tokio::test]
async fn tools_stay_listed_while_their_server_is_away() {
    let gateway = settled(&zoo("zoo", &[])).await;
    let before = gateway.catalog().tools().len();
    call(&gateway, "zoo_die", "{}").await.unwrap_err();
    assert_eq!(gateway.catalog().tools().len(), before);
    stop(gateway).await;
}
