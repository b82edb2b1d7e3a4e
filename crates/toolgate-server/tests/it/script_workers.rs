//! Scripts do not fail for what happens to the processes that run them. `TOOLGATE_SOAK_SCRIPTS` sets the number
//! of scripts (`make soak`).

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use futures_util::future::join_all;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{EXECUTE, text, tool_call};
use crate::crash::number_in_env;
use crate::gate::{TestGate, WAIT_TIMEOUT, all_processes_with, zoo};

/// Scripts that run at the same time.
const PARALLEL_SCRIPTS: u64 = 64;

async fn start() -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + "is_code_mode_client = true\n"));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

async fn run_script(gate: &TestGate, code: &str) -> Value {
    let body = tool_call("executeToolCode", &json!({"code": code}));
    gate.caller().post(EXECUTE, &body).await.expect_status(200)
}

/// Returns the workers of a gateway.
fn workers(gate: &TestGate) -> Vec<u32> {
    let parent = format!("PPid:\t{}\n", gate.child.id());
    let mut workers = all_processes_with("__script-worker");
    workers.retain(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains(&parent))
    });
    workers
}

/// Kills a worker, unless it has exited by now.
fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

#[tokio::test]
async fn worker_that_dies_while_idle_is_reaped_and_replaced() {
    let gate = start().await;
    let killed = Mutex::new(Vec::new());
    // A worker that is killed while it starts was not idle, so this may take several rounds.
    eventually("an idle worker was killed", WAIT_TIMEOUT, async || {
        let workers = workers(&gate);
        workers.iter().copied().for_each(kill);
        killed.lock().unwrap().extend(workers);
        let answer = run_script(&gate, "result = 1 + 1").await;
        assert!(text(&answer).starts_with('2'), "{answer}");
        let log = gate.log();
        log.contains("idle script worker died").then_some(())
    })
    .await;
    let killed = killed.into_inner().unwrap();
    eventually("they are reaped", WAIT_TIMEOUT, async || {
        let mut paths = killed.iter().map(|pid| format!("/proc/{pid}"));
        (!paths.any(|path| Path::new(&path).exists())).then_some(())
    })
    .await;
    eventually("others are there", WAIT_TIMEOUT, async || {
        (!workers(&gate).is_empty()).then_some(())
    })
    .await;
}

/// At most one worker is killed while a script runs, so the second worker of a script always survives.
#[tokio::test]
async fn no_script_fails_while_workers_are_killed() {
    let gate = start().await;
    let scripts = number_in_env("TOOLGATE_SOAK_SCRIPTS").unwrap_or(5_000);
    for round in 0..scripts / PARALLEL_SCRIPTS {
        let script = |number: u64| {
            let gate = &gate;
            async move {
                let answer = run_script(gate, &format!("result = {number} + {round}")).await;
                let sum = number + round;
                assert_eq!(answer["is_error"], Value::Null, "{answer}\n{}", gate.log());
                assert_eq!(text(&answer).lines().next(), Some(&*sum.to_string()));
            }
        };
        let running = join_all((0..PARALLEL_SCRIPTS).map(script));
        let victim = workers(&gate).into_iter().nth((round % 3) as usize);
        tokio::join!(running, async { victim.into_iter().for_each(kill) });
    }
}
