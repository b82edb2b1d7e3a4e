//! The catalog built from the listings of all servers.

use toolgate_core::catalog::ItemKind;

use crate::support::{WAIT_TIMEOUT, call, server, start, start_settled, stdio_zoo, stop};

#[tokio::test]
async fn collects_all_pages_of_all_lists() {
    for era in ["legacy", "modern"] {
        let gateway = start_settled(&stdio_zoo(
            "zoo",
            &["--era", era, "--tools", "250", "--page", "7"],
        ))
        .await;
        let catalog = gateway.catalog();
        let offer = catalog
            .listing(&server(&gateway, "zoo").server.name)
            .unwrap();
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
async fn malformed_tools_are_reported_and_all_others_are_usable() {
    let gateway = start_settled(&stdio_zoo("zoo", &["--malformed"])).await;
    let catalog = gateway.catalog();
    let offer = catalog
        .listing(&server(&gateway, "zoo").server.name)
        .unwrap();
    let wrong: Vec<_> = offer
        .problems
        .iter()
        .map(|p| (p.kind, p.reason.as_str()))
        .collect();
    for reason in [
        "not an object",
        "`name` is missing or empty",
        "`name` is not a string",
        "`inputSchema` is not an object",
    ] {
        assert!(
            wrong.contains(&(ItemKind::Tool, reason)),
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
        "the server receives the raw name"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn subscribers_receive_new_catalogs() {
    let gateway = start(&(stdio_zoo("a", &[]) + &stdio_zoo("b", &["--slow-start", "300"]))).await;
    let mut catalogs = gateway.subscribe_catalog();
    let mut generation = 0;
    let seen = tokio::time::timeout(WAIT_TIMEOUT, async {
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
async fn tools_stay_listed_while_their_server_is_unavailable() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let before = gateway.catalog().tools().len();
    call(&gateway, "zoo_die", "{}").await.unwrap_err();
    assert_eq!(gateway.catalog().tools().len(), before);
    stop(gateway).await;
}
