//! Approvals that hold for a session, or until they are revoked.

use serde_json::json;
use sqlx::Connection as _;
use toolgate::approval::{ApprovalScope, ApprovalState, DecideError, Decider};
use toolgate::{CallError, Caller, Gateway, ServerName};
use toolgate_core::name::{ToolId, ToolName};
use toolgate_testkit::eventually;

use crate::approval_support::{
    ASK, approval, approval_by_id, approve, assert_hello_runs, decide, denial, needs_approval,
    pending_approval_id, request_approval, say_hello, start_asking,
};
use crate::support::{
    KEYS, WAIT_TIMEOUT, call_as, config, start_in_folder, start_settled, stdio_zoo, stop, with_key,
};

/// Checks that a caller may say anything without a further approval.
async fn assert_granted(gateway: &Gateway, caller: &Caller) {
    for text in ["hello", "hello", "other"] {
        let answer = call_as(gateway, caller, "zoo_say", &json!({"text": text})).await;
        assert_eq!(answer.unwrap().result.text(), text);
    }
}

/// Checks that a caller needs an approval, both for the approved arguments and for new ones.
async fn assert_not_granted(gateway: &Gateway, caller: &Caller) {
    for text in ["hello", "unseen"] {
        let answer = call_as(gateway, caller, "zoo_say", &json!({"text": text})).await;
        pending_approval_id(&answer);
    }
}

#[tokio::test]
async fn session_grant_applies_to_its_session_until_restart() {
    let folder = tempfile::tempdir().unwrap();
    let toml = stdio_zoo("zoo", &[]) + ASK + KEYS;
    let gateway = start_in_folder(folder.path(), &toml).await;
    let alice = with_key("alice").with_session("s1");
    let id = request_approval(&gateway, &alice).await;
    let shown = approval_by_id(&gateway, &id).await;
    assert_eq!(shown.request.from.session.as_deref(), Some("s1"));
    approve(&gateway, &id, ApprovalScope::Session).await;
    // The approved call itself is not for another session either.
    let elsewhere = with_key("alice").with_session("s2");
    assert_ne!(request_approval(&gateway, &elsewhere).await, id);
    assert_granted(&gateway, &alice).await;
    for other in [
        elsewhere,
        with_key("bob").with_session("s1"),
        with_key("alice"),
    ] {
        assert_not_granted(&gateway, &other).await;
    }
    let grants = gateway.approvals().grants().await.unwrap();
    assert!(grants.is_empty(), "a session grant is not permanent");
    stop(gateway).await;
    let gateway = start_in_folder(folder.path(), &toml).await;
    assert_not_granted(&gateway, &alice).await;
    stop(gateway).await;
}

#[tokio::test]
async fn call_without_session_cannot_be_approved_for_one() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    let refused = decide(&gateway, &id, approval(ApprovalScope::Session)).await;
    assert!(
        matches!(refused, Err(DecideError::NoSession)),
        "{refused:?}"
    );
    assert_eq!(
        request_approval(&gateway, &caller).await,
        id,
        "still pending"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn always_grant_persists_until_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let toml = stdio_zoo("zoo", &[]) + ASK + KEYS;
    let gateway = start_in_folder(folder.path(), &toml).await;
    let (alice, bob) = (with_key("alice"), with_key("bob"));
    let id = request_approval(&gateway, &alice).await;
    approve(&gateway, &id, ApprovalScope::Always).await;
    assert_hello_runs(&gateway, &alice).await;
    stop(gateway).await;

    let gateway = start_in_folder(folder.path(), &toml).await;
    assert_granted(&gateway, &alice).await;
    assert_not_granted(&gateway, &bob).await;
    let grants = gateway.approvals().grants().await.unwrap();
    let [grant] = &grants[..] else {
        panic!("one grant: {grants:?}")
    };
    assert_eq!(grant.caller.as_deref(), Some("alice"));
    assert_eq!((grant.server.as_str(), grant.tool.as_str()), ("zoo", "say"));
    assert_eq!(grant.approval, id);
    assert!(
        gateway
            .approvals()
            .revoke_grant(&grant.id, &Decider::Admin)
            .await
            .unwrap()
    );
    assert!(
        !gateway
            .approvals()
            .revoke_grant(&grant.id, &Decider::Admin)
            .await
            .unwrap()
    );
    assert_not_granted(&gateway, &alice).await;
    stop(gateway).await;
}

#[tokio::test]
async fn revoking_a_grant_revokes_its_unused_approval() {
    let gateway = start_asking("").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    approve(&gateway, &id, ApprovalScope::Always).await;
    let grants = gateway.approvals().grants().await.unwrap();
    let revoked = gateway
        .approvals()
        .revoke_grant(&grants[0].id, &Decider::Admin)
        .await;
    assert!(revoked.unwrap());
    assert_ne!(request_approval(&gateway, &caller).await, id);
    stop(gateway).await;
}

#[tokio::test]
async fn grant_satisfies_ask_but_not_deny() {
    let toml = stdio_zoo("zoo", &[]) + ASK;
    let gateway = start_settled(&toml).await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    approve(&gateway, &id, ApprovalScope::Always).await;
    assert_granted(&gateway, &caller).await;
    let deny = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"deny\"\n";
    gateway.apply(config(&(toml + deny))).await.unwrap();
    let answer = say_hello(&gateway, &caller).await;
    assert!(
        matches!(answer, Err(CallError::Unknown { .. })),
        "{answer:?}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn grant_does_not_apply_to_changed_server_command() {
    let toml = stdio_zoo("zoo", &[]) + ASK;
    let gateway = start_settled(&toml).await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    approve(&gateway, &id, ApprovalScope::Always).await;
    assert_granted(&gateway, &caller).await;
    let changed = stdio_zoo("zoo", &["--tools", "1"]) + ASK;
    gateway.apply(config(&changed)).await.unwrap();
    let asked = eventually(
        "the changed server needs approval",
        WAIT_TIMEOUT,
        async || {
            let answer = say_hello(&gateway, &caller).await;
            needs_approval(&answer).then_some(answer)
        },
    )
    .await;
    assert_ne!(pending_approval_id(&asked), id);
    gateway.apply(config(&toml)).await.unwrap();
    eventually(
        "the original server has its grant",
        WAIT_TIMEOUT,
        async || {
            let answer = say_hello(&gateway, &caller).await.ok()?;
            (answer.result.text() == "hello").then_some(())
        },
    )
    .await;
    stop(gateway).await;
}

/// A zoo that defines its tool `say` in another way while a file exists.
struct RedefiningZoo {
    folder: tempfile::TempDir,
    gateway: Gateway,
}

impl RedefiningZoo {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toml = stdio_zoo("zoo", &["--redefine-while", &flag_file(&folder)]) + ASK;
        let gateway = start_settled(&toml).await;
        Self { folder, gateway }
    }

    /// Changes the definition of `say`, or restores it, and waits until the gateway has seen it.
    async fn set_redefined(&self, redefined: bool) {
        let file = flag_file(&self.folder);
        if redefined {
            std::fs::write(file, "").unwrap();
        } else {
            std::fs::remove_file(file).unwrap();
        }
        let zoo = ServerName::parse("zoo").unwrap();
        self.gateway.servers().list()[0].reconnect();
        eventually("the new definition", WAIT_TIMEOUT, async || {
            let catalog = self.gateway.catalog();
            let tool = ToolId {
                server: zoo.clone(),
                tool: ToolName::new("say"),
            };
            let definition = catalog.tool(&tool)?.tool.definition.get().to_owned();
            (definition.contains("everyone") == redefined).then_some(())
        })
        .await;
    }
}

fn flag_file(folder: &tempfile::TempDir) -> String {
    folder.path().join("redefine").to_str().unwrap().to_owned()
}

#[tokio::test]
async fn approval_does_not_apply_to_changed_definition() {
    let zoo = RedefiningZoo::start().await;
    let gateway = &zoo.gateway;
    for scope in [
        ApprovalScope::Once,
        ApprovalScope::Session,
        ApprovalScope::Always,
    ] {
        let caller = Caller::library().with_session(scope.as_str());
        let id = request_approval(gateway, &caller).await;
        approve(gateway, &id, scope).await;
        zoo.set_redefined(true).await;
        assert_not_granted(gateway, &caller).await;
        zoo.set_redefined(false).await;
        assert_hello_runs(gateway, &caller).await;
    }
    stop(zoo.gateway).await;
}

#[tokio::test]
async fn call_of_a_tool_that_changed_meanwhile_cannot_be_approved() {
    let zoo = RedefiningZoo::start().await;
    let gateway = &zoo.gateway;
    let caller = Caller::library();
    let id = request_approval(gateway, &caller).await;
    zoo.set_redefined(true).await;
    let refused = decide(gateway, &id, approval(ApprovalScope::Always)).await;
    assert!(
        matches!(refused, Err(DecideError::ToolChanged(_))),
        "{refused:?}"
    );
    let next = request_approval(gateway, &caller).await;
    assert_ne!(next, id);
    approve(gateway, &next, ApprovalScope::Once).await;
    assert_hello_runs(gateway, &caller).await;
    decide(gateway, &id, denial(None)).await.unwrap();
    stop(zoo.gateway).await;
}

#[tokio::test]
async fn stored_approvals_without_definition_are_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let toml = stdio_zoo("zoo", &[]) + ASK + KEYS;
    let gateway = start_in_folder(folder.path(), &toml).await;
    let (alice, bob) = (with_key("alice"), with_key("bob"));
    let always = request_approval(&gateway, &alice).await;
    approve(&gateway, &always, ApprovalScope::Always).await;
    let once = request_approval(&gateway, &bob).await;
    approve(&gateway, &once, ApprovalScope::Once).await;
    stop(gateway).await;
    // As an earlier version stored them: only the fingerprint of the server.
    sqlx::any::install_default_drivers();
    let database = format!("sqlite:{}", folder.path().join("toolgate.db").display());
    let mut connection = sqlx::AnyConnection::connect(&database).await.unwrap();
    for table in ["grants", "approvals"] {
        let sql = format!("UPDATE {table} SET fingerprint = substr(fingerprint, 1, 64)");
        let update = sqlx::query(sqlx::AssertSqlSafe(sql));
        let done = update.execute(&mut connection).await.unwrap();
        assert!(done.rows_affected() > 0);
    }
    connection.close().await.unwrap();

    let gateway = start_in_folder(folder.path(), &toml).await;
    assert_eq!(gateway.approvals().grants().await.unwrap(), []);
    for caller in [&alice, &bob] {
        assert_not_granted(&gateway, caller).await;
    }
    for id in [always, once] {
        let state = approval_by_id(&gateway, &id).await.state;
        assert_eq!(state, ApprovalState::Expired);
    }
    stop(gateway).await;
}
