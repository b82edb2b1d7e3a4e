//! Compares what the gateway acknowledged with what is there after a restart: nothing lost, nothing doubled.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use toolgate::store::Store;
use toolgate::{Config, Gateway};

use crate::caller::{EXECUTE, tool_call};
use crate::gate::{TestGate, files_in, zoo};

/// Alias of the tool that appends its argument to a file, see [`ExecutionFile`].
pub(crate) const APPEND: &str = "zoo_append";

/// The file in which the tool `append` of a zoo notes what it has executed.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionFile(PathBuf);

/// Makes calls of `append`, each with an id that is its request id and its argument.
#[derive(Clone, Debug)]
pub(crate) struct AppendClient {
    pub(crate) client: Client,
    pub(crate) url: String,
    pub(crate) key: String,
}

/// What a caller knows about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallAnswer {
    /// The result of the tool.
    Acknowledged,
    /// An error which says that the call did not run.
    Refused,
    /// A tool message about an error.
    Failed,
    /// No answer: the gateway died.
    Lost,
}

/// All calls of a test with their answers, by id.
#[derive(Debug, Default)]
pub(crate) struct CallLedger {
    answers: HashMap<String, CallAnswer>,
    accepts_interrupted: bool,
}

impl ExecutionFile {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self(folder.join("executions"))
    }

    /// Builds `[mcp_servers.zoo]` with the tool `append`.
    pub(crate) fn server(&self) -> String {
        zoo("zoo", &["--append-to", self.0.to_str().unwrap()])
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the ids of executed calls in order.
    pub(crate) fn read(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl AppendClient {
    pub(crate) fn new(gate: &TestGate, key: &str) -> Self {
        Self {
            client: gate.client.clone(),
            url: gate.url.clone(),
            key: key.to_owned(),
        }
    }

    pub(crate) async fn call(&self, id: &str) -> CallAnswer {
        let body = tool_call(APPEND, &json!({"line": id})).to_string();
        let request = self
            .client
            .post(format!("{}{EXECUTE}", self.url))
            .bearer_auth(&self.key)
            .header("x-request-id", id)
            .body(body);
        let Ok(response) = request.send().await else {
            return CallAnswer::Lost;
        };
        let status = response.status();
        let Ok(text) = response.text().await else {
            return CallAnswer::Lost;
        };
        let body: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"));
        if status != 200 {
            return CallAnswer::Refused;
        }
        if body["content"] == id {
            CallAnswer::Acknowledged
        } else {
            assert_eq!(body["is_error"], true, "{body}");
            CallAnswer::Failed
        }
    }
}

impl CallLedger {
    pub(crate) fn note(&mut self, id: String, answer: CallAnswer) {
        let earlier = self.answers.insert(id, answer);
        assert_eq!(earlier, None, "ids are unique");
    }

    /// Adds the calls of another ledger.
    pub(crate) fn merge(&mut self, other: Self) {
        for (id, answer) in other.answers {
            self.note(id, answer);
        }
    }

    pub(crate) fn count(&self, answer: CallAnswer) -> usize {
        self.answers
            .values()
            .filter(|found| **found == answer)
            .count()
    }

    /// Lets acknowledged calls be recorded as interrupted: on a full disk, there may be room for the opening
    /// of a call but not for its end.
    pub(crate) fn accept_interrupted(&mut self) {
        self.accepts_interrupted = true;
    }

    /// Compares the calls with the records and with what the tool executed.
    pub(crate) fn check(&self, executed: &[String], records: &[Value]) {
        let mut found: HashMap<&str, Vec<&Value>> = HashMap::new();
        for record in records {
            // A call of a run has an id of its own; its parent is the request that started the run.
            let ids = [&record["parent_id"], &record["request_id"]];
            let mut ids = ids.into_iter().filter_map(Value::as_str);
            let id = ids.find(|id| self.answers.contains_key(*id));
            found
                .entry(id.unwrap_or_default())
                .or_default()
                .push(record);
        }
        let unique: HashSet<&str> = executed.iter().map(String::as_str).collect();
        assert_eq!(unique.len(), executed.len(), "a call was executed twice");
        for (id, answer) in &self.answers {
            let records = found.get(id.as_str()).map_or(&[][..], Vec::as_slice);
            assert!(records.len() <= 1, "{id} has several records: {records:?}");
            let outcome = records
                .first()
                .map(|record| record["outcome"].as_str().unwrap());
            let was_executed = unique.contains(id.as_str());
            let is_consistent = match answer {
                CallAnswer::Acknowledged => {
                    let is_interrupted = outcome == Some("interrupted");
                    let is_expected =
                        outcome == Some("ok") || (is_interrupted && self.accepts_interrupted);
                    was_executed && is_expected
                }
                CallAnswer::Refused => {
                    !was_executed && !matches!(outcome, Some("ok" | "open" | "interrupted"))
                }
                CallAnswer::Failed | CallAnswer::Lost => match outcome {
                    Some("ok") => was_executed,
                    // Opened, but not known to have ended: it may have run.
                    Some("interrupted") => true,
                    // The caller was gone before the end.
                    Some("cancelled" | "server" | "timeout" | "away") => true,
                    _ => !was_executed,
                },
            };
            assert!(
                is_consistent,
                "{id} was {answer:?}, executed: {was_executed}, record: {records:?}"
            );
        }
        for id in unique {
            assert!(self.answers.contains_key(id), "{id} was never called");
        }
    }
}

/// Checks that the hash chain of a stopped gateway's trail holds, on a copy of its data.
pub(crate) async fn verify_trail(data: &Path) {
    let copy = tempfile::tempdir().unwrap();
    for path in files_in(data) {
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let store = Store::open(copy.path()).await.unwrap();
    let gateway = Gateway::builder(Config::default()).store(store).start();
    let gateway = gateway.await.unwrap();
    let trail = gateway.audit().verify().await.unwrap();
    assert_eq!(trail.problem_count, 0, "{:?}", trail.problems);
    assert!(trail.entries > 0 && trail.seals > 0, "{trail:?}");
    gateway.stop(Duration::from_secs(10)).await;
}

/// Returns all records of tool calls since a time, newest first.
pub(crate) async fn export_records(gate: &TestGate, filter: &str) -> Vec<Value> {
    let path = format!("/api/audit?format=jsonl&{filter}");
    let text = gate.get(&path).await.text().await.unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
