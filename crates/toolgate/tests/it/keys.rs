//! Whether keys are required, in the library.

use std::path::Path;

use serde_json::json;
use toolgate::audit::AdminAction;
use toolgate::engine::MakeOptionalError;
use toolgate::gateway::StartError;
use toolgate::store::{ConfigChange, StoreError};
use toolgate::{Config, Gateway, Store};

use crate::support::{config, stop};

const KEY: &str = "[keys.a]\nkey = \"a-has-a-long-key\"\n";

async fn start(folder: &Path, config: Config) -> Result<Gateway, StartError> {
    let store = Store::open(folder).await.unwrap();
    Gateway::builder(config).store(store).start().await
}

fn make_optional() -> AdminAction {
    AdminAction::new("admin", "keys.make_optional", "")
}

#[tokio::test]
async fn keys_stay_required_after_the_last_one_until_made_optional() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), Config::default()).await.unwrap();
    assert!(!gateway.keys().are_required());
    gateway.apply(config(KEY)).await.unwrap();
    assert!(gateway.keys().are_required() && gateway.keys().has_any());
    let refused = gateway
        .keys()
        .make_optional(make_optional())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, MakeOptionalError::KeysDefined),
        "{refused}"
    );
    gateway.apply(Config::default()).await.unwrap();
    assert!(gateway.keys().are_required() && !gateway.keys().has_any());
    stop(gateway).await;

    let gateway = start(folder.path(), Config::default()).await.unwrap();
    assert!(gateway.keys().are_required(), "the store remembers it");
    gateway.keys().make_optional(make_optional()).await.unwrap();
    assert!(!gateway.keys().are_required());
    stop(gateway).await;

    // A key that is there from the start is remembered too.
    let gateway = start(folder.path(), config(KEY)).await.unwrap();
    stop(gateway).await;
    let gateway = start(folder.path(), Config::default()).await.unwrap();
    assert!(gateway.keys().are_required());
    stop(gateway).await;
}

#[tokio::test]
async fn rejected_configuration_does_not_require_keys() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), Config::default()).await.unwrap();
    let server = "[mcp_servers.x]\ncommand = \"none\"\n";
    let mut twice = config(&format!("{server}{KEY}"));
    twice.servers.extend_from_within(..);
    let rejected = gateway.apply(twice).await.unwrap_err();
    assert!(matches!(rejected, StartError::NameTaken(_)), "{rejected}");
    assert!(!gateway.keys().are_required());
    stop(gateway).await;
}

#[tokio::test]
async fn unreadable_requirement_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    store
        .save(&[ConfigChange::PutSetting {
            key: "keys_required".to_owned(),
            value: json!("maybe"),
            file_hash: String::new(),
        }])
        .await
        .unwrap();
    store.close().await;
    drop(store);
    let refused = start(folder.path(), Config::default()).await.unwrap_err();
    assert!(
        matches!(&refused, StartError::Store(StoreError::UnreadableSetting(name)) if name == "keys_required"),
        "{refused}"
    );
}
