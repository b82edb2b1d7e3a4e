//! The catalog built from the listings of all servers.

use toolgate_core::catalog::ItemKind;

use crate::support::{WAIT_TIMEOUT, call, server, start, start_settled, stdio_zoo};

#[tokio::test]
async fn collects_all_pages_of_all_lists() {
    for era in ["legacy", "modern"] {
        let registry = start_settled(&stdio_zoo(
            "zoo",
            &["--era", era, "--tools", "250", "--page", "7"],
        ))
        .await;
        let catalog = registry.catalog();
        let offer = catalog
            .listing(&server(&registry, "zoo").server.name)
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
        registry.stop().await;
    }
}

#[tokio::test]
async fn malformed_tools_are_reported_and_all_others_are_usable() {
    let registry = start_settled(&stdio_zoo("zoo", &["--malformed"])).await;
    let catalog = registry.catalog();
    let offer = catalog
        .listing(&server(&registry, "zoo").server.name)
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
    let hostile = call(&registry, "zoo.../../etc/passwd", r#"{"a":1}"#).await;
    assert!(hostile.is_ok(), "the server receives the raw name");
    registry.stop().await;
}

#[tokio::test]
async fn subscribers_receive_new_catalogs() {
    let registry = start(&(stdio_zoo("a", &[]) + &stdio_zoo("b", &["--slow-start", "300"])));
    let mut catalogs = registry.subscribe();
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
    registry.stop().await;
}

#[tokio::test]
async fn tools_stay_listed_while_their_server_is_unavailable() {
    let registry = start_settled(&stdio_zoo("zoo", &[])).await;
    let before = registry.catalog().tools().len();
    call(&registry, "zoo.die", "{}").await.unwrap_err();
    assert_eq!(registry.catalog().tools().len(), before);
    registry.stop().await;
}
