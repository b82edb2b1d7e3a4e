//! Nothing is acknowledged that is not stored: full disks, I/O errors, locked and damaged databases, lost
//! keys, and a second gateway on the same data.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{ApiResponse, EXECUTE, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, files_in, toolgate, zoo};
use crate::mcp::LegacySession;
use crate::oracle::{
    APPEND, AppendClient, CallAnswer, CallLedger, ExecutionFile, export_records, verify_trail,
};
use crate::small_disk::{DiskFault, DiskGate};

/// Calls in the largest array that the gateway accepts.
const ARRAY_CALLS: usize = 128;
const DENY_KINDS: &str = r#"{"rules": [{"tool": "zoo_kinds", "action": "deny"}]}"#;

async fn request_key(gate: &TestGate, name: &str) -> ApiResponse {
    let entry = json!({"name": name});
    gate.caller().post("/api/keys", &entry).await
}

/// Creates a key through the API and returns it.
async fn create_key(gate: &TestGate, name: &str) -> String {
    let created = request_key(gate, name).await.expect_status(201);
    created["key"].as_str().unwrap().to_owned()
}

/// Waits until the readiness probe answers with a status, and returns its body.
async fn wait_for_ready(gate: &TestGate, status: u16) -> Value {
    let what = format!("/ready answers {status}");
    eventually(&what, WAIT_TIMEOUT, async || {
        let ready = gate.caller().get("/ready").await;
        (ready.status == status).then_some(ready.body)
    })
    .await
}

/// Checks that a response says that the store cannot be written for now.
fn assert_unavailable(response: &ApiResponse) {
    assert_eq!(response.status, 503, "{}", response.body);
    assert_eq!(response.body["error"]["code"], "store_unavailable");
    assert!(response.retry_after.is_some(), "{}", response.body);
}

fn has_deny_rule(permissions: &Value) -> bool {
    let rules = permissions["rules"].as_array().unwrap();
    rules.iter().any(|rule| rule["tool"] == "zoo_kinds")
}

/// A gateway on a small disk, with a key for calls, whose calls are noted.
struct Scenario {
    disk: DiskGate,
    executions: ExecutionFile,
    _folder: tempfile::TempDir,
    key: String,
    ledger: CallLedger,
}

impl Scenario {
    async fn start(more: &str, fault: DiskFault) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let executions = ExecutionFile::in_folder(folder.path());
        let disk = DiskGate::start(&(executions.server() + more), fault);
        disk.gate.wait_for_state("zoo", "healthy").await;
        let key = create_key(&disk.gate, "worker").await;
        Self {
            disk,
            executions,
            _folder: folder,
            key,
            ledger: CallLedger::default(),
        }
    }

    /// Makes calls one after the other and returns how many were acknowledged.
    async fn make_calls(&mut self, prefix: &str, count: usize) -> usize {
        let client = AppendClient::new(&self.disk.gate, &self.key);
        let mut acknowledged = 0;
        for number in 0..count {
            let id = format!("{prefix}-{number}");
            let answer = client.call(&id).await;
            acknowledged += usize::from(answer == CallAnswer::Acknowledged);
            self.ledger.note(id, answer);
        }
        acknowledged
    }

    async fn restart(&mut self) {
        self.disk.stop().await;
        self.disk.relaunch();
        self.disk.gate.wait_for_state("zoo", "healthy").await;
    }

    async fn check(&self) {
        let records = export_records(&self.disk.gate, "").await;
        self.ledger.check(&self.executions.read(), &records);
    }
}

#[tokio::test]
async fn full_disk_loses_nothing_that_was_acknowledged() {
    acknowledged_is_kept_despite(DiskFault::Full).await;
}

#[tokio::test]
async fn write_errors_lose_nothing_that_was_acknowledged() {
    acknowledged_is_kept_despite(DiskFault::WriteError).await;
}

async fn acknowledged_is_kept_despite(fault: DiskFault) {
    let mut scenario = Scenario::start("", fault).await;
    let leaked = create_key(&scenario.disk.gate, "leaked").await;
    scenario.make_calls("before", 5).await;

    scenario.disk.fill();
    let mut stored_keys = Vec::new();
    for number in 0..10 {
        scenario.make_calls(&format!("full{number}"), 5).await;
        let name = format!("key{number}");
        let created = request_key(&scenario.disk.gate, &name).await;
        if created.status == 201 {
            stored_keys.push(name);
        } else {
            assert_unavailable(&created);
        }
    }
    let ready = wait_for_ready(&scenario.disk.gate, 503).await;
    assert_eq!(ready["status"], "not_writable", "{ready}");
    assert!(!ready["reason"].as_str().unwrap().is_empty(), "{ready}");
    let gate = &scenario.disk.gate;
    assert_unavailable(&gate.caller().delete("/api/keys/leaked").await);
    let rules = serde_json::from_str(DENY_KINDS).unwrap();
    assert_unavailable(&gate.caller().put("/api/permissions", &rules).await);
    let refused = gate.with_key(&scenario.key);
    assert_unavailable(&refused.execute(APPEND, &json!({"line": "x"})).await);
    let session = LegacySession::open(gate, "/mcp", Some(&scenario.key)).await;
    let call = json!({"name": APPEND, "arguments": {"line": "x"}});
    let (_, answer) = session.request("tools/call", call).await;
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert_eq!(gate.with_key(&leaked).call_status().await, 503);

    scenario.disk.free();
    wait_for_ready(gate, 200).await;
    assert_eq!(
        gate.with_key(&leaked).call_status().await,
        200,
        "the refused revocation has no effect"
    );
    gate.caller()
        .delete("/api/keys/leaked")
        .await
        .expect_status(200);
    gate.caller()
        .put("/api/permissions", &rules)
        .await
        .expect_status(200);
    assert_eq!(scenario.make_calls("after", 50).await, 50);
    scenario.restart().await;

    let gate = &scenario.disk.gate;
    assert_eq!(gate.with_key(&leaked).call_status().await, 401);
    assert!(has_deny_rule(&gate.json("/api/permissions").await));
    for name in stored_keys {
        gate.json(&format!("/api/keys/{name}")).await;
    }
    scenario.check().await;
    scenario.disk.stop().await;
    verify_trail(&scenario.disk.data()).await;
}

/// The disk fills and empties again and again, also while calls are in flight.
#[tokio::test]
async fn short_shortages_of_space_leave_no_phantom_commits() {
    let mut scenario = Scenario::start("", DiskFault::Full).await;
    for round in 0..3 {
        scenario.disk.fill();
        let name = format!("key{round}");
        let created = request_key(&scenario.disk.gate, &name).await;
        assert!([201, 503].contains(&created.status.as_u16()));
        scenario.make_calls(&format!("full{round}"), 20).await;
        scenario.disk.free();
        wait_for_ready(&scenario.disk.gate, 200).await;
        assert_eq!(scenario.make_calls(&format!("free{round}"), 10).await, 10);
    }
    let keys = scenario.disk.gate.json("/api/keys").await;
    scenario.restart().await;
    assert_eq!(scenario.disk.gate.json("/api/keys").await, keys);
    scenario.check().await;
}

/// Records that the database could not take stay in the intent log, which the next start reads.
#[tokio::test]
async fn gateway_stopped_or_killed_on_a_full_disk_loses_no_records() {
    let mut scenario = Scenario::start("", DiskFault::Full).await;
    scenario.ledger.accept_interrupted();
    for (round, signal) in ["-TERM", "-KILL"].into_iter().enumerate() {
        scenario.make_calls(&format!("before{round}"), 5).await;
        scenario.disk.fill();
        scenario.make_calls(&format!("full{round}"), 30).await;
        scenario.disk.gate.signal(signal);
        let code = scenario.disk.gate.wait_for_exit().await;
        assert_eq!(code, (signal == "-TERM").then_some(0));
        scenario.disk.free();
        scenario.disk.relaunch();
        scenario.disk.gate.wait_for_state("zoo", "healthy").await;
        scenario.check().await;
    }
    scenario.disk.stop().await;
    verify_trail(&scenario.disk.data()).await;
}

/// A start on a full disk fails and does not destroy what an earlier process left.
#[tokio::test]
async fn start_on_a_full_disk_keeps_the_intent_log() {
    let mut scenario = Scenario::start("", DiskFault::Full).await;
    scenario.make_calls("before", 20).await;
    scenario.disk.gate.signal("-KILL");
    scenario.disk.gate.wait_for_exit().await;
    scenario.disk.fill();
    let message = assert_start_failed(&scenario.disk.serve_to_exit());
    assert!(message.contains("database"), "{message}");
    scenario.disk.free();
    scenario.disk.relaunch();
    scenario.disk.gate.wait_for_state("zoo", "healthy").await;
    scenario.check().await;
}

#[tokio::test]
async fn calls_go_on_without_records_if_configured() {
    let mut scenario =
        Scenario::start("[audit]\non_failure = \"continue\"\n", DiskFault::Full).await;
    scenario.disk.fill();
    let gate = &scenario.disk.gate;
    let refused = eventually("a change is refused", WAIT_TIMEOUT, async || {
        let created = request_key(gate, &uuid::Uuid::now_v7().to_string()).await;
        (created.status != 201).then_some(created)
    })
    .await;
    assert_unavailable(&refused);
    wait_for_ready(&scenario.disk.gate, 503).await;
    assert_eq!(scenario.make_calls("full", 20).await, 20);
    wait_for_ready(&scenario.disk.gate, 503).await;
    scenario.disk.free();
    wait_for_ready(&scenario.disk.gate, 200).await;
    assert_eq!(scenario.make_calls("after", 5).await, 5);
    scenario.restart().await;
    scenario.check().await;
}

/// Makes arrays of trivial calls concurrently, the largest allowed, and checks that all are answered with their
/// result. Returns the number of calls by request id.
async fn make_arrays(gate: &TestGate, key: &str, arrays: usize) -> HashMap<String, usize> {
    let call = tool_call("zoo_add", &json!({"a": 1, "b": 2}));
    let body = json!(vec![call; ARRAY_CALLS]);
    let send = async |number: usize| {
        // As long as an id may be, so that the intent log grows fast.
        let id = format!("{number:0>128}");
        let caller = gate.with_key(key).with_header("x-request-id", &id);
        let answers = caller.post(EXECUTE, &body).await.expect_status(200);
        let answers = answers.as_array().unwrap().iter();
        let count = answers.filter(|answer| answer["content"] == "3").count();
        assert_eq!(count, ARRAY_CALLS, "array {number}");
        (id, count)
    };
    futures_util::stream::iter(0..arrays)
        .map(send)
        .buffer_unordered(4)
        .collect()
        .await
}

/// Counts the records that say `ok`, by request id.
async fn count_ok_records(gate: &TestGate) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for record in export_records(gate, "outcome=ok").await {
        let id = record["request_id"].as_str().unwrap().to_owned();
        *counts.entry(id).or_default() += 1;
    }
    counts
}

/// Both files of the intent log are in use when the gateway is killed.
#[tokio::test]
async fn intent_log_that_was_rotated_loses_nothing_in_a_crash() {
    let mut gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let key = create_key(&gate, "worker").await;
    let answered = make_arrays(&gate, &key, 40).await;
    gate.signal("-KILL");
    gate.wait_for_exit().await;
    let data = gate.folder.path().join("data");
    let size = |name: &str| fs::metadata(data.join(name)).unwrap().len();
    assert!(size("intents-0.log") > 0 && size("intents-1.log") > 0);
    gate.relaunch();
    assert_eq!(count_ok_records(&gate).await, answered);
}

/// More calls go on than records may wait to be written.
#[tokio::test]
async fn many_calls_go_on_without_records_if_configured() {
    // Cached results are recorded like others, and are faster.
    let toml = "cache_ttl = \"1h\"\n[audit]\non_failure = \"continue\"\n";
    let scenario = Scenario::start(toml, DiskFault::Full).await;
    scenario.disk.fill();
    let gate = &scenario.disk.gate;
    eventually("a change is refused", WAIT_TIMEOUT, async || {
        let created = request_key(gate, &uuid::Uuid::now_v7().to_string()).await;
        (created.status == 503).then_some(())
    })
    .await;
    make_arrays(gate, &scenario.key, 84).await;
}

#[tokio::test]
async fn read_only_disk_prevents_start_and_loses_nothing() {
    let mut scenario = Scenario::start("", DiskFault::Full).await;
    assert_eq!(scenario.make_calls("before", 5).await, 5);
    scenario.disk.stop().await;
    let DiskGate { gate, disk } = &scenario.disk;
    if !disk.remount(gate, "ro") {
        return;
    }
    let output = scenario.disk.serve_to_exit();
    let message = assert_start_failed(&output);
    assert!(message.contains("data"), "{message}");
    assert!(disk.remount(gate, "rw"));
    scenario.disk.relaunch();
    scenario.disk.gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(scenario.make_calls("after", 5).await, 5);
    scenario.restart().await;
    scenario.check().await;
}

/// Checks that the gateway refused to start and returns its message.
fn assert_start_failed(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it started: {message}");
    assert!(output.status.code().is_some(), "it crashed: {message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

/// A process that holds the write lock of the database until it is dropped.
struct DatabaseLock(Child);

impl DatabaseLock {
    fn acquire(database: &Path) -> Self {
        let script = "import sqlite3, sys\n\
            connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n\
            connection.execute('BEGIN EXCLUSIVE')\n\
            print('locked', flush=True)\n\
            sys.stdin.read()\n";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(line.trim(), "locked");
        Self(child)
    }
}

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn locked_database_refuses_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let executions = ExecutionFile::in_folder(folder.path());
    let mut gate = TestGate::start(&executions.server());
    gate.wait_for_state("zoo", "healthy").await;
    let key = create_key(&gate, "worker").await;
    let database = gate.folder.path().join("data/toolgate.db");
    let lock = DatabaseLock::acquire(&database);
    assert_unavailable(&request_key(&gate, "late").await);
    wait_for_ready(&gate, 503).await;
    let call = gate.with_key(&key);
    assert_unavailable(&call.execute(APPEND, &json!({"line": "x"})).await);
    drop(lock);
    wait_for_ready(&gate, 200).await;
    let mut ledger = CallLedger::default();
    let client = AppendClient::new(&gate, &key);
    for number in 0..5 {
        let id = format!("after-{number}");
        let answer = client.call(&id).await;
        assert_eq!(answer, CallAnswer::Acknowledged);
        ledger.note(id, answer);
    }
    let late = create_key(&gate, "late").await;
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(gate.with_key(&late).call_status().await, 200);
    ledger.check(&executions.read(), &export_records(&gate, "").await);
}

/// Runs a gateway in a folder until it exits or listens; returns its output if it exited.
fn try_start(folder: &Path) -> Result<RunningGate, Output> {
    let mut child = toolgate(folder)
        .args(["serve", "--port", "0", "--data-dir", "data"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    match line.trim().strip_prefix("listening on ") {
        Some(url) => Ok(RunningGate {
            url: url.to_owned(),
            child,
        }),
        None => Err(child.wait_with_output().unwrap()),
    }
}

/// A gateway in a folder that outlives it.
struct RunningGate {
    url: String,
    child: Child,
}

impl Drop for RunningGate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn stop(gate: &mut TestGate) {
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
}

#[tokio::test]
async fn lost_or_wrong_key_file_prevents_start() {
    let mut gate = TestGate::start(&zoo("zoo", &[]));
    create_key(&gate, "alice").await;
    stop(&mut gate).await;
    let folder = gate.folder.path();
    let file = folder.join("data/store.key");
    let key = fs::read(&file).unwrap();

    fs::remove_file(&file).unwrap();
    let message = assert_start_failed(&try_start(folder).err().unwrap());
    assert!(message.contains("store.key"), "{message}");
    assert!(message.contains("restore"), "{message}");
    assert!(!file.exists(), "a new key would hide the loss");

    for wrong in [
        vec![7; key.len()],
        key[..key.len() - 1].to_vec(),
        Vec::new(),
    ] {
        fs::write(&file, &wrong).unwrap();
        let message = assert_start_failed(&try_start(folder).err().unwrap());
        assert!(message.contains("store.key"), "{message}");
        assert_eq!(fs::read(&file).unwrap(), wrong, "the file is left alone");
    }

    fs::write(&file, &key).unwrap();
    gate.relaunch();
    let keys = gate.json("/api/keys").await;
    assert_eq!(keys["keys"][0]["name"], "alice", "{keys}");
}

/// Runs a Python script with a `connection` to the database of a stopped gateway.
fn edit_database(folder: &Path, script: &str) {
    let connect = "import sqlite3, sys, time\n\
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n";
    let edited = Command::new("python3")
        .args(["-c", &format!("{connect}{script}")])
        .arg(folder.join("data/toolgate.db"))
        .status();
    assert!(edited.unwrap().success());
}

/// A crash between the steps of the very first start leaves a directory that can be used.
#[tokio::test]
async fn interrupted_first_start_can_be_repeated() {
    let mut gate = TestGate::start(&zoo("zoo", &[]));
    stop(&mut gate).await;
    let folder = gate.folder.path();
    // Either the key was created and nothing else, or the check of the key too, but no other table.
    let without_check = "connection.execute('DELETE FROM meta')\n";
    let drop_tables = "tables = connection.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\").fetchall()\n\
        for (table,) in tables:\n    if table != 'meta': connection.execute(f'DROP TABLE {table}')\n";
    for steps in [
        format!("{without_check}{drop_tables}"),
        drop_tables.to_owned(),
    ] {
        edit_database(folder, &steps);
        for file in ["intents-0.log", "intents-1.log"] {
            fs::remove_file(folder.join("data").join(file)).unwrap();
        }
        let started = try_start(folder);
        let started =
            started.map_err(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        // Dropping it kills it.
        drop(started.unwrap());
    }
}

#[tokio::test]
async fn second_gateway_is_refused_although_every_file_was_removed() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    let folder = gate.folder.path();
    let message = assert_start_failed(&try_start(folder).err().unwrap());
    assert!(message.contains("another gateway"), "{message}");
    for entry in fs::read_dir(folder.join("data")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let message = assert_start_failed(&try_start(folder).err().unwrap());
    assert!(message.contains("another gateway"), "{message}");
}

#[tokio::test]
async fn modes_of_directory_and_files_are_corrected_at_start() {
    let mut gate = TestGate::start(&zoo("zoo", &[]));
    create_key(&gate, "alice").await;
    let data = gate.folder.path().join("data");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let check = |data: &Path| {
        assert_eq!(mode(data), 0o700);
        let mut count = 0;
        for entry in fs::read_dir(data).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            count += 1;
        }
        assert!(
            count >= 4,
            "the database, its log, the key and the intent log"
        );
    };
    check(&data);
    stop(&mut gate).await;
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    gate.relaunch();
    create_key(&gate, "bob").await;
    check(&data);
}

/// The latest time seen is stored, so that a budget's window does not move back with the system clock.
#[tokio::test]
async fn clock_that_was_set_back_gives_no_budget_again() {
    let mut gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let entry = json!({"name": "alice", "budget": {"calls": 2, "per": "hour"}});
    let created = gate.caller().post("/api/keys", &entry).await;
    let created = created.expect_status(201);
    let key = created["key"].as_str().unwrap();
    stop(&mut gate).await;
    // As if the system clock had been ahead by three hours and was set back while the gateway was stopped.
    let ahead = "ahead = int(time.time() * 1000) + 3 * 3600 * 1000\n\
        done = connection.execute(\"UPDATE meta SET value = ? WHERE key = 'latest_time'\", (str(ahead),))\n\
        assert done.rowcount == 1\n";
    edit_database(gate.folder.path(), ahead);
    let two_hours = std::time::Duration::from_secs(2 * 3600);
    let future = humantime::format_rfc3339_millis(std::time::SystemTime::now() + two_hours);
    for expected in [[200, 200, 429], [429, 429, 429], [429, 429, 429]] {
        gate.relaunch();
        gate.wait_for_state("zoo", "healthy").await;
        for status in expected {
            let found = gate.with_key(key).call_status().await;
            assert_eq!(found, status, "{}", gate.log());
        }
        stop(&mut gate).await;
    }
    gate.relaunch();
    let records = export_records(&gate, "outcome=ok").await;
    assert_eq!(records.len(), 2);
    for record in records {
        let started_at = record["started_at"].as_str().unwrap();
        assert!(*started_at > *future.to_string(), "{record}");
    }
}

/// Copies the files of a data directory.
fn copy_data(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("data")).unwrap();
    for path in files_in(&from.join("data")) {
        fs::copy(&path, to.join("data").join(path.file_name().unwrap())).unwrap();
    }
    fs::copy(from.join("toolgate.toml"), to.join("toolgate.toml")).unwrap();
}

/// A gateway on damaged data, and what its clients know.
struct DamagedGate<'a> {
    gate: &'a RunningGate,
    client: reqwest::Client,
    key: &'a str,
}

impl DamagedGate<'_> {
    /// Tries to create a key; returns whether that was acknowledged.
    async fn try_change(&self, name: &str) -> bool {
        let request = self.client.post(format!("{}/api/keys", self.gate.url));
        let response = request.body(json!({"name": name}).to_string()).send();
        let status = response.await.unwrap().status().as_u16();
        assert!([201, 500, 503].contains(&status), "{status}");
        status == 201
    }

    /// Makes calls once the server is there; some may be refused.
    async fn make_calls(&self) -> CallLedger {
        eventually("the server is connected", WAIT_TIMEOUT, async || {
            let ready: Value = self.get("/ready").await?;
            (ready["connected"] == 1).then_some(())
        })
        .await;
        let client = AppendClient {
            client: self.client.clone(),
            url: self.gate.url.clone(),
            key: self.key.to_owned(),
        };
        let mut ledger = CallLedger::default();
        for number in 0..5 {
            let id = format!("damaged-{number}");
            let answer = client.call(&id).await;
            ledger.note(id, answer);
        }
        ledger
    }

    /// Returns the names of all keys; `None` if they cannot be read.
    async fn key_names(&self) -> Option<Vec<String>> {
        let keys = self.get("/api/keys").await?;
        let names = keys["keys"].as_array()?.iter();
        let name = |key: &Value| key["name"].as_str().unwrap().to_owned();
        Some(names.map(name).collect())
    }

    /// Returns all records; `None` if they cannot be read.
    async fn records(&self) -> Option<Vec<Value>> {
        let page = self.get("/api/audit?limit=1000").await?;
        page["records"].as_array().cloned()
    }

    /// Returns a JSON body, whatever the status; `None` if the response says that data cannot be read.
    async fn get(&self, path: &str) -> Option<Value> {
        let url = format!("{}{path}", self.gate.url);
        let response = self.client.get(url).send().await.unwrap();
        let is_error = response.status() == 500;
        let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        (!is_error && body["error"].is_null()).then_some(body)
    }
}

/// With a damaged page anywhere in the database, the gateway does not start, or keeps what was there and
/// what it acknowledges; a key never vanishes silently.
#[tokio::test]
async fn damaged_page_loses_nothing_silently() {
    const PAGE: usize = 4096;
    const DAMAGES: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let executions = ExecutionFile::in_folder(folder.path());
    let mut gate = TestGate::start(&executions.server());
    gate.wait_for_state("zoo", "healthy").await;
    for _ in 0..20 {
        let arguments = json!({"text": "x".repeat(1000)});
        gate.call("zoo_echo", &arguments.to_string()).await;
    }
    let key = create_key(&gate, "alice").await;
    stop(&mut gate).await;
    let original = gate.folder.path();
    let pages = fs::read(original.join("data/toolgate.db")).unwrap().len() / PAGE;
    assert!(pages > 20, "{pages} pages");
    for page in (0..DAMAGES).map(|step| 1 + step * (pages - 2) / (DAMAGES - 1)) {
        let folder = tempfile::tempdir().unwrap();
        copy_data(original, folder.path());
        let database = folder.path().join("data/toolgate.db");
        let mut bytes = fs::read(&database).unwrap();
        bytes[page * PAGE..(page + 1) * PAGE].fill(0xa5);
        fs::write(&database, bytes).unwrap();
        let _ = fs::remove_file(executions.path());
        check_damaged(folder.path(), &key, &executions, page).await;
    }
}

/// Uses a gateway whose database has a damaged page, kills it and compares.
async fn check_damaged(folder: &Path, key: &str, executions: &ExecutionFile, page: usize) {
    let client = crate::gate::json_client();
    let started = match try_start(folder) {
        Ok(started) => started,
        Err(output) => {
            let message = assert_start_failed(&output);
            assert!(message.contains("database"), "page {page}: {message}");
            return;
        }
    };
    let damaged = DamagedGate {
        gate: &started,
        client: client.clone(),
        key,
    };
    let names = damaged.key_names().await;
    assert!(names.is_none_or(|names| names == ["alice"]), "page {page}");
    let is_stored = damaged.try_change("bob").await;
    let ledger = damaged.make_calls().await;
    drop(started);
    let Ok(again) = try_start(folder) else {
        return;
    };
    let damaged = DamagedGate {
        gate: &again,
        client,
        key,
    };
    let names = damaged.key_names().await.unwrap_or_default();
    let has = |name: &str| names.iter().any(|found| found == name);
    assert!(has("alice"), "page {page}: {names:?}");
    assert!(!is_stored || has("bob"), "page {page}: {names:?}");
    if let Some(records) = damaged.records().await {
        ledger.check(&executions.read(), &records);
    }
}

/// A gateway that has acknowledged calls.
struct UsedGate {
    gate: TestGate,
    ledger: CallLedger,
    executions: ExecutionFile,
    _folder: tempfile::TempDir,
}

/// Makes calls to a gateway with a setting for durability.
async fn use_gate_with_durability(durability: &str) -> UsedGate {
    let folder = tempfile::tempdir().unwrap();
    let executions = ExecutionFile::in_folder(folder.path());
    let audit = format!("[audit]\ndurability = \"{durability}\"\n");
    let gate = TestGate::start(&(executions.server() + &audit));
    gate.wait_for_state("zoo", "healthy").await;
    let key = create_key(&gate, "worker").await;
    let mut ledger = CallLedger::default();
    let client = AppendClient::new(&gate, &key);
    for number in 0..20 {
        let id = format!("call-{number}");
        let answer = client.call(&id).await;
        assert_eq!(answer, CallAnswer::Acknowledged);
        ledger.note(id, answer);
    }
    UsedGate {
        gate,
        ledger,
        executions,
        _folder: folder,
    }
}

impl UsedGate {
    async fn check(&self) {
        let records = export_records(&self.gate, "").await;
        self.ledger.check(&self.executions.read(), &records);
    }
}

/// Returns how much of the intent log is used; its space is allocated in advance.
fn intent_bytes(gate: &TestGate) -> usize {
    let data = gate.folder.path().join("data");
    let used = |name: &str| {
        let bytes = fs::read(data.join(name)).unwrap();
        bytes.iter().filter(|byte| **byte != 0).count()
    };
    used("intents-0.log") + used("intents-1.log")
}

#[tokio::test]
async fn durability_disk_keeps_records_of_a_killed_gateway() {
    let mut used = use_gate_with_durability("disk").await;
    used.gate.signal("-KILL");
    used.gate.wait_for_exit().await;
    assert!(intent_bytes(&used.gate) > 0);
    used.gate.relaunch();
    used.check().await;
}

#[tokio::test]
async fn durability_batch_writes_no_intents_and_loses_nothing_at_a_clean_stop() {
    let mut used = use_gate_with_durability("batch").await;
    assert_eq!(intent_bytes(&used.gate), 0);
    used.gate.restart().await;
    used.check().await;
}
