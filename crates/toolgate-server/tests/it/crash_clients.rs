//! Clients of the crash tests, and ledgers of what the gateway acknowledged to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::{EXECUTE, tool_call};
use crate::gate::TestGate;
use crate::oracle::{APPEND, AppendClient, CallAnswer, CallLedger};

const CALL_CLIENTS: usize = 4;
const MODEL: &str = "openai/scripted";
/// Answer of the model after its tool call.
const DONE: &str = "all done";
/// Time after which a refused client tries again.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Tells clients when to stop, and counts answers.
#[derive(Clone)]
pub(crate) struct Round {
    number: u64,
    is_over: Arc<AtomicBool>,
    answers: watch::Sender<u64>,
}

impl Round {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            is_over: Arc::default(),
            answers: watch::Sender::new(0),
        }
    }

    /// Waits until clients have got a number of acknowledgements.
    pub(crate) async fn wait_for_answers(&self, target: u64) {
        let mut answers = self.answers.subscribe();
        answers.wait_for(|count| *count >= target).await.unwrap();
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Takes note of what a client was told.
    async fn note(&self, answer: CallAnswer) {
        if answer == CallAnswer::Acknowledged {
            self.answers.send_modify(|count| *count += 1);
        } else {
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// What one round acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    pub(crate) calls: CallLedger,
    pub(crate) admin: AdminLedger,
}

/// What must be there after a restart; whatever was under way at the kill may or may not have happened.
#[derive(Debug, Default)]
pub(crate) struct AdminLedger {
    /// Whether each key exists, by name; `None` if unknown.
    keys: BTreeMap<String, Option<bool>>,
    /// Texts that the rule may have: the acknowledged one, and the one under way.
    rules: Vec<String>,
    /// Ids of approvals that were given.
    approvals: Vec<String>,
}

/// The clients of a round, which run until the gateway is killed.
pub(crate) struct Clients {
    callers: JoinSet<CallLedger>,
    admins: JoinSet<AdminLedger>,
}

impl Clients {
    /// Starts all clients. `key` is that of a caller.
    pub(crate) async fn start(gate: &TestGate, key: &str, round: &Round) -> Self {
        let rule = current_rule(gate).await;
        let (mut callers, mut admins) = (JoinSet::new(), JoinSet::new());
        let client = AppendClient::new(gate, key);
        for index in 0..CALL_CLIENTS {
            callers.spawn(make_calls(client.clone(), round.clone(), index));
        }
        callers.spawn(make_runs(client, round.clone()));
        let admin = AdminClient {
            client: gate.client.clone(),
            url: gate.url.clone(),
        };
        admins.spawn(admin.clone().change_keys(round.clone()));
        admins.spawn(admin.clone().change_rules(round.clone(), rule));
        admins.spawn(admin.approve_calls(round.clone(), key.to_owned()));
        Self { callers, admins }
    }

    /// Waits until all clients have noticed that the gateway is gone.
    pub(crate) async fn join(self) -> Acknowledged {
        let mut acknowledged = Acknowledged::default();
        for calls in self.callers.join_all().await {
            acknowledged.calls.merge(calls);
        }
        for admin in self.admins.join_all().await {
            acknowledged.admin.merge(admin);
        }
        acknowledged
    }
}

/// Sends changes as the administrator.
#[derive(Clone)]
struct AdminClient {
    client: Client,
    url: String,
}

impl AdminClient {
    /// Makes a change.
    async fn send(&self, method: Method, path: &str, body: &Value) -> CallAnswer {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match send(request.body(body.to_string())).await {
            None => CallAnswer::Lost,
            Some(answer) if answer.status == 503 => CallAnswer::Refused,
            Some(answer) => {
                let is_success = (200..300).contains(&answer.status);
                assert!(is_success, "{path}: {answer:?}");
                CallAnswer::Acknowledged
            }
        }
    }

    /// Creates keys and deletes every other one.
    async fn change_keys(self, round: Round) -> AdminLedger {
        let mut ledger = AdminLedger::default();
        for number in 0.. {
            let name = format!("r{}-{number}", round.number);
            let body = json!({"name": name});
            let created = self.send(Method::POST, "/api/keys", &body).await;
            round.note(created).await;
            let mut exists = ledger.note_key(&name, created, false);
            if number % 2 == 0 && exists == Some(true) {
                let path = format!("/api/keys/{name}");
                let deleted = self.send(Method::DELETE, &path, &Value::Null).await;
                round.note(deleted).await;
                exists = ledger.note_key(&name, deleted, true);
            }
            if exists.is_none() || round.is_over() {
                break;
            }
        }
        ledger
    }

    /// Replaces the rule about a tool that nobody calls.
    async fn change_rules(self, round: Round, current: String) -> AdminLedger {
        let mut rules = vec![current];
        for number in 0.. {
            // A pattern need not match a tool that exists.
            let tool = format!("zoo_r{}_{number}*", round.number);
            let body = json!({"rules": [{"tool": tool, "action": "deny"}, {"tool": "zoo_say", "action": "ask"}]});
            let changed = self.send(Method::PUT, "/api/permissions", &body).await;
            round.note(changed).await;
            match changed {
                CallAnswer::Acknowledged => rules = vec![tool],
                CallAnswer::Lost => rules.push(tool),
                CallAnswer::Refused | CallAnswer::Failed => {}
            }
            if changed == CallAnswer::Lost || round.is_over() {
                break;
            }
        }
        AdminLedger {
            rules,
            ..AdminLedger::default()
        }
    }

    /// Asks for approvals as a caller, and gives them.
    async fn approve_calls(self, round: Round, key: String) -> AdminLedger {
        let mut ledger = AdminLedger::default();
        for number in 0.. {
            let text = format!("r{}-{number}", round.number);
            let call = tool_call("zoo_say", &json!({"text": text}));
            let request = self.client.post(format!("{}{EXECUTE}", self.url));
            let request = request.bearer_auth(&key).body(call.to_string());
            let Some(answer) = send(request).await else {
                break;
            };
            let Some(id) = answer.body["approval"]["id"].as_str() else {
                let is_refused = answer.status == 503 || answer.body["is_error"] == true;
                assert!(is_refused, "no approval: {answer:?}");
                round.note(CallAnswer::Refused).await;
                continue;
            };
            let path = format!("/api/approvals/{id}");
            let approve = json!({"decision": "approve"});
            let approved = self.send(Method::POST, &path, &approve).await;
            round.note(approved).await;
            if approved == CallAnswer::Acknowledged {
                ledger.approvals.push(id.to_owned());
            }
            if approved == CallAnswer::Lost || round.is_over() {
                break;
            }
        }
        ledger
    }
}

impl AdminLedger {
    /// Takes note of the answer to a change of a key, and returns whether the key exists then.
    fn note_key(&mut self, name: &str, answer: CallAnswer, existed: bool) -> Option<bool> {
        let exists = match answer {
            CallAnswer::Acknowledged => Some(!existed),
            CallAnswer::Refused => Some(existed),
            CallAnswer::Failed | CallAnswer::Lost => None,
        };
        self.keys.insert(name.to_owned(), exists);
        exists
    }

    fn merge(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.rules.extend(other.rules);
        self.approvals.extend(other.approvals);
    }

    /// Compares with what is there after a restart.
    pub(crate) async fn check(&self, gate: &TestGate) {
        for (name, exists) in &self.keys {
            let found = gate.get(&format!("/api/keys/{name}")).await.status() == 200;
            if let Some(exists) = exists {
                assert_eq!(found, *exists, "key {name}");
            }
        }
        let rule = current_rule(gate).await;
        assert!(self.rules.contains(&rule), "{rule}: {:?}", self.rules);
        for id in &self.approvals {
            let approval = gate.json(&format!("/api/approvals/{id}")).await;
            assert_eq!(approval["state"], "approved", "{approval}");
        }
    }
}

async fn current_rule(gate: &TestGate) -> String {
    let permissions = gate.json("/api/permissions").await;
    permissions["rules"][0]["tool"].as_str().unwrap().to_owned()
}

async fn make_calls(client: AppendClient, round: Round, index: usize) -> CallLedger {
    let mut ledger = CallLedger::default();
    for number in 0.. {
        let id = format!("r{}-{index}-{number}", round.number);
        let answer = client.call(&id).await;
        ledger.note(id, answer);
        round.note(answer).await;
        if answer == CallAnswer::Lost || round.is_over() {
            break;
        }
    }
    ledger
}

/// Starts runs, each of which calls the tool `append` once, with its request id as the argument.
async fn make_runs(client: AppendClient, round: Round) -> CallLedger {
    let mut ledger = CallLedger::default();
    for number in 0.. {
        let id = format!("r{}-run-{number}", round.number);
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": id}]});
        let request = client
            .client
            .post(format!("{}/v1/chat/completions", client.url))
            .bearer_auth(&client.key)
            .header("x-request-id", &id)
            .body(body.to_string());
        let answer = match send(request).await {
            None => CallAnswer::Lost,
            Some(answer) if answer.body["choices"][0]["message"]["content"] == DONE => {
                CallAnswer::Acknowledged
            }
            Some(answer) => {
                // 424: the run ended with an error after its call.
                assert!([200, 424, 503].contains(&answer.status), "{answer:?}");
                CallAnswer::Failed
            }
        };
        ledger.note(id, answer);
        round.note(answer).await;
        if answer == CallAnswer::Lost || round.is_over() {
            break;
        }
    }
    ledger
}

/// A complete response with a JSON body.
#[derive(Debug)]
struct Answer {
    status: u16,
    body: Value,
}

/// Sends a request; `None` if the gateway is gone before the end of the response.
async fn send(request: RequestBuilder) -> Option<Answer> {
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    let text = response.text().await.ok()?;
    let body = serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"));
    Some(Answer { status, body })
}

/// Starts a model that calls the tool `append` with what it is told, and is done then.
pub(crate) fn start_model() -> ScriptedModel {
    let reply = Reply::from_request(|request| {
        let messages = request["messages"].as_array().unwrap();
        let last = messages.last().unwrap();
        if last["role"] == "tool" {
            return Reply::text(DONE);
        }
        let line = last["content"].as_str().unwrap();
        Reply::calls([("c1", APPEND, json!({"line": line}))])
    });
    ScriptedModel::start(vec![reply])
}
