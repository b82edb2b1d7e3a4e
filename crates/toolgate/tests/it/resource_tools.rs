//! The built-in tools that list and read resources of servers.

use serde_json::json;

use crate::support::{
    answer_text, call_as, is_failed, is_unknown_tool, start_settled, stdio_zoo, stop, with_key,
};

#[tokio::test]
async fn resource_tools_list_and_read_visible_resources() {
    let toml = stdio_zoo("zoo", &[])
        + &stdio_zoo("ape", &[])
        + "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\nresources = false\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\ntools = [\"zoo.*\"]\n";
    let gateway = start_settled(&toml).await;
    let (alice, bob) = (with_key("alice"), with_key("bob"));
    let listed = call_as(&gateway, &bob, "ListMcpResources", &json!({})).await;
    let listed = listed.unwrap().result.text();
    assert!(listed.contains("\"uri\":\"zoo://text\""), "{listed}");
    assert!(
        !listed.contains("ape"),
        "only visible servers are listed: {listed}"
    );
    let uri = json!({"uri": "zoo://text"});
    let read = call_as(&gateway, &bob, "ReadMcpResource", &uri).await;
    assert!(!is_failed(&read), "{read:?}");
    assert!(!answer_text(&read).is_empty());
    let template = json!({"uri": "zoo://item/7", "server": "zoo"});
    let item = call_as(&gateway, &bob, "ReadMcpResource", &template).await;
    assert_eq!(item.unwrap().result.text(), "item 7");
    for (arguments, expected) in [
        (json!({}), "`uri` is missing"),
        (json!({"uri": "zoo://nothing"}), "no server offers"),
        (
            json!({"uri": "zoo://text", "server": "ape"}),
            "no server offers",
        ),
    ] {
        let answer = call_as(&gateway, &bob, "ReadMcpResource", &arguments).await;
        assert!(is_failed(&answer), "{answer:?}");
        assert!(answer_text(&answer).contains(expected), "{answer:?}");
    }
    let hidden = call_as(&gateway, &alice, "ListMcpResources", &json!({})).await;
    assert!(is_unknown_tool(&hidden), "{hidden:?}");
    stop(gateway).await;
}
