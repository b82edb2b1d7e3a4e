//! Failed authentications: counted, reported, and answered 429 when a peer sends many wrong keys.

use serde_json::json;

use crate::caller::{ALICE, Caller};
use crate::gate::{TestGate, zoo};

const ADMIN: &str = "the-admin-key-of-this-test";
/// Wrong keys that are answered 401 before further ones are answered 429.
const MAX_WRONG_KEYS: usize = 20;

fn start_gate(env: &[(&str, &str)]) -> TestGate {
    let keys = format!(
        "[keys.alice]\nkey = \"{ALICE}\"\n[keys.old]\nkey = \"{ALICE}-old\"\nexpires_at = \"2020-01-01T00:00:00Z\"\n"
    );
    TestGate::start_with(&(zoo("zoo", &[]) + &keys), &[], env)
}

async fn statuses(caller: &Caller<'_>, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(caller.get(path).await.status.as_u16());
    }
    statuses
}

async fn failures(admin: &Caller<'_>, gate: &TestGate, kind: &str) -> u64 {
    let request = gate.client.get(format!("{}/metrics", gate.url));
    let metrics = request.headers(admin.headers()).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let name = format!("toolgate_auth_failures_total{{kind=\"{kind}\"}} ");
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(&name));
    value
        .unwrap_or_else(|| panic!("{metrics}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn many_wrong_keys_get_429_while_valid_keys_pass() {
    let gate = start_gate(&[]);
    let (admin, nobody) = (gate.caller(), gate.caller());
    assert_eq!(failures(&admin, &gate, "caller").await, 0);
    // Requests without a key are failures, but never lead to 429.
    let missing = statuses(&nobody, "/v1/models", 2 * MAX_WRONG_KEYS).await;
    assert_eq!(missing, [401; 2 * MAX_WRONG_KEYS]);
    let wrong = gate.with_key("wrong");
    let first = statuses(&wrong, "/v1/models", MAX_WRONG_KEYS - 1).await;
    assert_eq!(first, [401; MAX_WRONG_KEYS - 1]);
    // An expired key is a wrong one too.
    let expired = gate.with_key(&format!("{ALICE}-old"));
    assert_eq!(statuses(&expired, "/v1/models", 2).await, [401, 429]);
    let refused = gate
        .with_key("another")
        .execute("zoo_add", &json!({}))
        .await;
    let after: u64 = refused.retry_after.as_ref().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    let error = refused.expect_status(429);
    assert_eq!(error["error"]["code"], "rate_limited", "{error}");

    let valid = gate.with_key(ALICE);
    assert_eq!(statuses(&valid, "/v1/models", 3).await, [200; 3]);
    assert_eq!(nobody.get("/v1/models").await.status, 401);
    assert_eq!(wrong.get("/v1/models").await.status, 429, "no reset");
    let expected = 3 * MAX_WRONG_KEYS as u64 + 4;
    assert_eq!(failures(&admin, &gate, "caller").await, expected);
    assert_eq!(failures(&admin, &gate, "admin").await, 0);
}

#[tokio::test]
async fn wrong_admin_keys_are_counted_and_reported() {
    let mut gate = start_gate(&[("TOOLGATE_ADMIN_KEY", ADMIN)]);
    let admin = gate.with_key(ADMIN);
    // The page asks without a key before it shows its sign-in form.
    assert_eq!(statuses(&gate.caller(), "/api/keys", 3).await, [401; 3]);
    assert_eq!(failures(&admin, &gate, "admin").await, 0);
    for path in ["/api/keys", "/api/runs", "/api/approvals", "/metrics"] {
        let wrong = statuses(&gate.with_key("wrong"), path, MAX_WRONG_KEYS / 4).await;
        assert_eq!(wrong, [401; MAX_WRONG_KEYS / 4], "{path}");
    }
    for path in ["/api/keys", "/api/runs", "/api/approvals", "/v1/models"] {
        let wrong = statuses(&gate.with_key("wrong"), path, 1).await;
        assert_eq!(wrong, [429], "{path}");
        assert_eq!(admin.get(path).await.status, 200, "{path}");
    }
    let alice = gate.with_key(ALICE);
    assert_eq!(alice.get("/api/keys").await.status, 403);
    assert_eq!(alice.get("/api/runs").await.status, 200);
    let expected = MAX_WRONG_KEYS as u64 + 3;
    assert_eq!(failures(&admin, &gate, "admin").await, expected);
    assert_eq!(failures(&admin, &gate, "caller").await, 1);
    drop((admin, alice));

    gate.signal("-TERM");
    gate.wait_for_exit().await;
    let log = gate.log();
    let reports = log
        .lines()
        .filter(|line| line.contains("authentication failures"));
    let reports: Vec<&str> = reports.collect();
    assert!((2..=6).contains(&reports.len()), "{log}");
    for kind in ["admin", "caller"] {
        let of_kind = |line: &&&str| line.contains(kind) && line.contains("127.0.0.1");
        assert!(reports.iter().any(|line| of_kind(&line)), "{kind}: {log}");
    }
}
