//! The audit trail as stored: what is in it, and that changes to it are found.

use std::path::Path;

use serde_json::json;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Row as _};
use toolgate::approval::{ApprovalScope, Decider, Ruling};
use toolgate::audit::{
    AdminAction, AuditKind, AuditQuery, AuditRecord, ChainProblem, VerifiedTrail,
};
use toolgate::store::StoreKey;
use toolgate::{Caller, Gateway, Store};

use crate::approval_support::pending_approval_id;
use crate::support::{
    KEYS, call_as, call_json, records, start_in_folder, start_settled, stdio_zoo, stop, with_key,
};

/// Opens the store of a gateway that may be running.
async fn open_store(folder: &Path) -> Store {
    let store = Store::open_read_only(folder, &StoreKey::DataDir).await;
    store.unwrap()
}

/// Executes statements on the database of a gateway that is not running.
async fn tamper(folder: &Path, statements: &[&str]) {
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}/toolgate.db?mode=rw", folder.display());
    let mut connection = AnyConnection::connect(&url).await.unwrap();
    for sql in statements {
        let sql = AssertSqlSafe((*sql).to_owned());
        let done = sqlx::query(sql).execute(&mut connection).await.unwrap();
        assert!(done.rows_affected() > 0, "{statements:?} changes nothing");
    }
    connection.close().await.unwrap();
}

async fn verify(folder: &Path) -> VerifiedTrail {
    let store = open_store(folder).await;
    let verifier = Gateway::audit_verifier().with_store_key(&store);
    let result = verifier.verify(&store).await.unwrap();
    let mut export = verifier.export(&store).await.unwrap();
    let mut lines = Vec::new();
    while let Some(page) = export.next_lines().await.unwrap() {
        lines.extend(page.into_iter().map(Ok::<_, std::io::Error>));
    }
    let exported = verifier.verify_export(lines.into_iter()).unwrap();
    // What is wrong in the store is wrong in its export too, except rows that are not in the chain.
    let is_unknown = |problem: &ChainProblem| matches!(problem, ChainProblem::UnknownRecord { .. });
    if !result.problems.iter().any(is_unknown) {
        assert_eq!(exported.problems, result.problems);
    }
    store.close().await;
    result
}

/// Makes a few calls that leave entries of several kinds, in several batches.
async fn make_trail(folder: &Path) {
    let toml = stdio_zoo("zoo", &[]);
    let gateway = start_in_folder(folder, &toml).await;
    for n in 0..5 {
        call_json(&gateway, "zoo_add", &json!({"a": n, "b": 1}))
            .await
            .unwrap();
        // Waits until the call is stored, so that each has a batch and a seal of its own.
        records(&gateway).await;
    }
    let action = AdminAction::new("admin", "key.remove", "leaked");
    gateway.audit().record_action(action).await.unwrap();
    stop(gateway).await;
}

#[tokio::test]
async fn untouched_trail_is_intact() {
    let folder = tempfile::tempdir().unwrap();
    make_trail(folder.path()).await;
    let result = verify(folder.path()).await;
    assert_eq!(result.problems, []);
    assert!(result.entries >= 11 && result.seals >= 6, "{result:?}");
    // A restart continues the chain.
    make_trail(folder.path()).await;
    let longer = verify(folder.path()).await;
    assert_eq!(longer.problems, []);
    assert!(longer.entries > result.entries);
}

#[tokio::test]
async fn every_kind_of_tampering_is_found() {
    let folder = tempfile::tempdir().unwrap();
    make_trail(folder.path()).await;
    let whole = std::fs::read(folder.path().join("toolgate.db")).unwrap();
    let end = verify(folder.path()).await.end.unwrap();
    // The segments of the first calls have one or two entries each.
    let second = "(SELECT seq FROM audit_segments ORDER BY seq LIMIT 1 OFFSET 1)";
    let last = "(SELECT MAX(seq) FROM audit_segments)";
    let cases: &[(&str, &[&str])] = &[
        ("changed record", &["UPDATE audit SET tool = 'harmless' WHERE tool = 'add'"]),
        ("changed caller", &["UPDATE audit SET caller = 'someone' WHERE seq = (SELECT MIN(seq) FROM audit)"]),
        ("removed record", &["DELETE FROM audit WHERE seq = (SELECT MIN(seq) FROM audit)"]),
        (
            "removed segment and its records",
            &[
                "DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT 1 OFFSET 1)",
                &format!("DELETE FROM audit_segments WHERE seq = {second}"),
            ],
        ),
        ("changed kind of an entry", &[&format!("UPDATE audit_segments SET entries = CAST('e' || substr(entries, 2) AS BLOB) WHERE seq = {second}")]),
        ("unreadable entries", &[&format!("UPDATE audit_segments SET entries = substr(entries, 3) WHERE seq = {second}")]),
        (
            "removed entry",
            &[&format!("UPDATE audit_segments SET entries = substr(entries, 1 + 1 + 2 + 36 + 32) WHERE seq = {second}")],
        ),
        ("emptied segment", &[&format!("UPDATE audit_segments SET entries = x'' WHERE seq = {second}")]),
        (
            "reordered segments",
            &[
                &format!("UPDATE audit_segments SET seq = -1 WHERE seq = {second}"),
                "UPDATE audit_segments SET seq = (SELECT MAX(seq) + 1 FROM audit_segments) WHERE seq = -1",
            ],
        ),
        ("removed start", &[&format!("DELETE FROM audit_segments WHERE seq < {second}")]),
        (
            "removed start that looks like retention",
            &[
                &format!("DELETE FROM audit WHERE seq <= {second}"),
                &format!("DELETE FROM audit_segments WHERE seq < {second}"),
                "UPDATE audit_segments SET entries = x'', bytes = 0 WHERE seq = (SELECT MIN(seq) FROM audit_segments)",
            ],
        ),
        ("forged seal", &[&format!("UPDATE audit_segments SET mac = zeroblob(32) WHERE seq = {last}")]),
        (
            "added record without a place",
            &["INSERT INTO audit (id, request_id, origin, name, outcome, bytes_in, bytes_out, started_at, cost_micro_usd, charged, cached)
               SELECT '0199ffff-0000-7000-8000-000000000000', 'r', 'http', 'n', 'ok', 0, 0, started_at + 1000, 0, 0, 0 FROM audit ORDER BY seq DESC LIMIT 1"],
        ),
        (
            "added record with the place of another",
            &["INSERT INTO audit (id, request_id, origin, name, outcome, bytes_in, bytes_out, started_at, cost_micro_usd, charged, cached, seq)
               SELECT '0199ffff-0000-7000-8000-000000000000', 'r', 'http', 'n', 'ok', 0, 0, started_at, 0, 0, 0, seq FROM audit ORDER BY seq DESC LIMIT 1"],
        ),
        (
            "added model request",
            &["INSERT INTO model_requests (id, request_id, provider, model, dialect, status, outcome, stream, started_at, duration_us, seq)
               SELECT '0199ffff-0000-7000-8000-000000000000', 'r', 'p', 'm', 'd', 200, 'ok', 0, started_at, 0, seq FROM audit ORDER BY seq DESC LIMIT 1"],
        ),
    ];
    for (what, statements) in cases {
        std::fs::write(folder.path().join("toolgate.db"), &whole).unwrap();
        tamper(folder.path(), statements).await;
        let result = verify(folder.path()).await;
        assert!(result.problem_count > 0, "{what} was not found");
    }
    // A cut at the end leaves a chain that is sound in itself; a seal kept elsewhere tells.
    std::fs::write(folder.path().join("toolgate.db"), &whole).unwrap();
    let last_but_one = format!("(SELECT MAX(seq) FROM audit_segments WHERE seq < {last})");
    // The segments go last, since they say where the cut is.
    let statements = ["audit", "audit_segments"]
        .map(|table| format!("DELETE FROM {table} WHERE seq > {last_but_one}"));
    tamper(
        folder.path(),
        &statements.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    assert_eq!(verify(folder.path()).await.problems, []);
    let store = open_store(folder.path()).await;
    let verifier = Gateway::audit_verifier()
        .with_store_key(&store)
        .with_checkpoint(end.0, &end.1);
    let result = verifier.verify(&store).await.unwrap();
    assert_eq!(result.problems, [ChainProblem::MissingEnd { seq: end.0 }]);
}

/// Whoever lacks the key can recompute all hashes, but not the seals.
#[tokio::test]
async fn seals_of_another_key_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let sealed = stdio_zoo("zoo", &[]) + "[audit]\nseal_key = \"a-key-kept-elsewhere\"\n";
    let gateway = start_in_folder(folder.path(), &sealed).await;
    call_json(&gateway, "zoo_add", &json!({"a": 1, "b": 1}))
        .await
        .unwrap();
    stop(gateway).await;
    let store = open_store(folder.path()).await;
    let without = Gateway::audit_verifier().with_store_key(&store);
    let result = without.clone().verify(&store).await.unwrap();
    assert!(
        matches!(result.problems[0], ChainProblem::UnknownKey { .. }),
        "{result:?}"
    );
    let with = without
        .with_key("a-key-kept-elsewhere")
        .verify(&store)
        .await
        .unwrap();
    assert_eq!(with.problems, []);
}

#[tokio::test]
async fn retention_by_size_keeps_the_rest_of_the_chain_intact() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_in_folder(
        folder.path(),
        &(stdio_zoo("zoo", &[]) + "[audit]\nmax_size_mb = 1\n"),
    )
    .await;
    let text = "x".repeat(15_000);
    for _ in 0..12 {
        let arguments = json!({"text": text});
        let calls = (0..10).map(|_| call_json(&gateway, "zoo_echo", &arguments));
        futures_util::future::join_all(calls).await;
        records(&gateway).await;
    }
    let before = gateway.audit().usage().await.unwrap();
    assert!(before.bytes > 1 << 20, "{before:?}");
    stop(gateway).await;
    // The sweep at the start deletes the oldest.
    let gateway = start_in_folder(
        folder.path(),
        &(stdio_zoo("zoo", &[]) + "[audit]\nmax_size_mb = 1\n"),
    )
    .await;
    let after = toolgate_testkit::eventually(
        "the oldest are deleted",
        crate::support::WAIT_TIMEOUT,
        async || {
            let usage = gateway.audit().usage().await.unwrap();
            (usage.bytes <= 1 << 20).then_some(usage)
        },
    )
    .await;
    assert!(after.first_entry > before.first_entry, "{after:?}");
    assert_eq!(gateway.audit().verify().await.unwrap().problems, []);
    stop(gateway).await;
    assert_eq!(verify(folder.path()).await.problems, []);
}

async fn events(gateway: &Gateway, kind: AuditKind) -> Vec<AuditRecord> {
    records(gateway).await;
    let query = AuditQuery {
        kind: Some(kind),
        limit: 100,
        ..AuditQuery::default()
    };
    gateway.audit().query(&query).await.unwrap().records
}

#[tokio::test]
async fn decisions_are_recorded_with_who_and_why() {
    let rules = "[[permissions.rules]]\ntool = \"zoo.echo\"\naction = \"ask\"\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + KEYS + rules)).await;
    let arguments = json!({"text": "hello"});
    let asked = call_as(&gateway, &with_key("alice"), "zoo_echo", &arguments).await;
    let id = pending_approval_id(&asked);
    let ruling = Ruling::Deny {
        reason: Some("not today".to_owned()),
        scope: ApprovalScope::Once,
    };
    gateway
        .approvals()
        .decide(&id, ruling, &Decider::Admin)
        .await
        .unwrap();
    let decisions = events(&gateway, AuditKind::Approval).await;
    let [denied] = decisions.as_slice() else {
        panic!("{decisions:?}")
    };
    assert_eq!(denied.outcome, "denied");
    assert_eq!(denied.caller.as_deref(), Some("alice"));
    assert_eq!(denied.approval.as_deref(), Some(id.as_str()));
    let detail = denied.detail.as_ref().unwrap();
    assert_eq!(detail["by"], "admin");
    assert_eq!(detail["reason"], "not today");
    stop(gateway).await;
}

#[tokio::test]
async fn hidden_tool_is_named_for_the_administrator_only() {
    let keys = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\ntools = [\"zoo.add\"]\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + keys)).await;
    let alice = with_key("alice");
    let hidden = call_as(&gateway, &alice, "zoo_echo", &json!({}))
        .await
        .unwrap_err();
    let absent = call_as(&gateway, &alice, "zoo_nothing", &json!({}))
        .await
        .unwrap_err();
    let [hidden, absent] =
        [hidden, absent].map(|error| error.to_string().split('`').next().unwrap().to_owned());
    assert_eq!(hidden, absent, "the caller learns nothing");
    let records = records(&gateway).await;
    let detail = records[0].detail.as_ref().unwrap();
    assert_eq!(detail["hidden_tool"], "zoo.echo", "{detail}");
    assert!(
        detail["gate"].as_str().unwrap().contains("alice"),
        "{detail}"
    );
    assert_eq!(records[1].detail, None);
    stop(gateway).await;
}

#[tokio::test]
async fn refused_calls_are_recorded_without_arguments_and_counted() {
    let keys = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\nrate_limit = \"1/hour\"\n";
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_in_folder(folder.path(), &(stdio_zoo("zoo", &[]) + keys)).await;
    let secret = json!({"text": "x".repeat(10_000)});
    for _ in 0..200 {
        let _ = call_as(&gateway, &with_key("alice"), "zoo_echo", &secret).await;
    }
    stop(gateway).await;
    let gateway = start_in_folder(folder.path(), &stdio_zoo("zoo", &[])).await;
    let all = records(&gateway).await;
    let limited: Vec<&AuditRecord> = all
        .iter()
        .filter(|record| record.outcome == "limited")
        .collect();
    assert!(limited.len() <= 12, "{}", limited.len());
    let total: i64 = limited.iter().map(|record| record.occurrences).sum();
    assert_eq!(total, 199);
    assert!(limited.iter().all(|record| record.arguments.is_none()));
    stop(gateway).await;
}

/// A process that is killed leaves the intent log. The next one takes over what the database lacks.
#[tokio::test]
async fn calls_in_flight_at_a_crash_are_recorded_as_interrupted_and_charged() {
    let folder = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let toml = stdio_zoo("zoo", &[]) + KEYS;
    let gateway = start_in_folder(folder.path(), &toml).await;
    let caller = with_key("alice");
    let (add, sleep) = (json!({"a": 1, "b": 2}), json!({"ms": 60_000}));
    let done = call_as(&gateway, &caller, "zoo_add", &add).await;
    done.unwrap();
    let waiting = call_as(&gateway, &caller, "zoo_sleep", &sleep);
    let crash = async {
        toolgate_testkit::eventually(
            "the call is announced",
            crate::support::WAIT_TIMEOUT,
            async || {
                let log = std::fs::read_to_string(folder.path().join("intents-0.log")).unwrap();
                log.contains("sleep").then_some(())
            },
        )
        .await;
        // What is on the disk at this moment is what a crash would leave.
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
    };
    tokio::select! {
        _ = waiting => panic!("the call ended"),
        () = crash => {}
    }
    stop(gateway).await;

    let gateway = start_in_folder(copy.path(), &toml).await;
    let after = records(&gateway).await;
    let summary: Vec<(&str, &str, bool)> = after
        .iter()
        .map(|record| {
            (
                record.name.as_str(),
                record.outcome.as_str(),
                record.charged,
            )
        })
        .collect();
    assert_eq!(
        summary,
        [("zoo_add", "ok", true), ("zoo_sleep", "interrupted", true)]
    );
    assert_eq!(gateway.audit().verify().await.unwrap().problems, []);
    stop(gateway).await;
    // Taken over once: another start adds nothing.
    let gateway = start_in_folder(copy.path(), &toml).await;
    assert_eq!(records(&gateway).await.len(), 2);
    stop(gateway).await;
}

#[tokio::test]
async fn resource_reads_are_recorded() {
    let gateway = start_settled(&stdio_zoo("zoo", &["--resources"])).await;
    let server = toolgate_core::ServerName::parse("zoo").unwrap();
    let upstream = toolgate_mcp::lane::UpstreamRequest {
        method: "resources/read",
        params: toolgate_mcp::jsonrpc::Object::new().text("uri", "zoo://nowhere"),
        name: Some("zoo://nowhere".to_owned()),
        ..Default::default()
    };
    let request = toolgate::RequestContext::default();
    let item = toolgate_core::policy::ServerItem::Resource {
        server: &server,
        uri: "zoo://nowhere",
    };
    let _ = gateway
        .resources()
        .send_request(&Caller::library(), &request, item, upstream)
        .await;
    let reads = events(&gateway, AuditKind::Resource).await;
    assert_eq!(reads.len(), 1, "{reads:?}");
    assert_eq!(reads[0].name, "zoo://nowhere");
    assert_eq!(reads[0].server.as_deref(), Some("zoo"));
    assert_ne!(reads[0].outcome, "open");
    stop(gateway).await;
}

#[tokio::test]
async fn stored_rows_have_bounded_texts() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_in_folder(folder.path(), &stdio_zoo("zoo", &[])).await;
    let long = "n".repeat(1 << 20);
    let call = toolgate::ToolCall::parse(&long, "{}")
        .with_request(&toolgate::RequestContext::with_id(&long));
    let _ = gateway.call(&Caller::library(), call).await;
    stop(gateway).await;
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}/toolgate.db?mode=rw", folder.path().display());
    let mut connection = AnyConnection::connect(&url).await.unwrap();
    let row = sqlx::query(
        "SELECT MAX(length(request_id)), MAX(length(name)), MAX(length(error)) FROM audit",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    for column in 0..3 {
        let length: i64 = row.try_get(column).unwrap();
        assert!(length <= 2048, "column {column} has {length} bytes");
    }
}
