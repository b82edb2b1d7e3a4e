//! Servers die and come back under load, again and again. Seeded, so that a failure can be run
//! again.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use toolgate::{Gateway, State};
use toolgate_testkit::{HttpZoo, eventually};

use crate::support::{SOON, at, call, reaches, settled, stop, text, zoo};

const SEED: u64 = 20_260_728;
const ROUNDS: usize = 12;

/// A small generator that needs no crate.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Calls one server until told to stop; every answer must be the one that was asked for. Says how
/// many calls were good, and how often `sleep` was asked for.
async fn load(gateway: &Gateway, server: &str, worker: usize, over: &AtomicBool) -> (usize, usize) {
    let (mut good, mut sleeps) = (0, 0);
    for n in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let answered = if n % 2 == 0 {
            let arguments = format!(r#"{{"worker":"{server}-{worker}","n":{n}}}"#);
            let echoed = call(gateway, &format!("{server}_echo"), &arguments).await;
            echoed.map(|outcome| {
                assert_eq!(outcome.result.text(), arguments, "another caller's answer")
            })
        } else {
            // It says nothing of being harmless, so it must never run twice.
            sleeps += 1;
            call(gateway, &format!("{server}_sleep"), r#"{"ms":1}"#)
                .await
                .map(drop)
        };
        match answered {
            Ok(()) => good += 1,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    (good, sleeps)
}

fn kill(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).unwrap_or_default();
    // It may be dead already.
    let _ = Command::new("kill").args(["-9", pid.trim()]).status();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_under_load_come_back_and_nothing_runs_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut web = [
        HttpZoo::start(&["--sessions", "--count", path("web0").to_str().unwrap()]),
        HttpZoo::start(&["--era", "modern", "--count", path("web1").to_str().unwrap()]),
    ];
    let mut toml = String::new();
    for n in 0..2 {
        let (pid, count) = (path(&format!("pid{n}")), path(&format!("pipe{n}")));
        let era = ["legacy", "modern"][n];
        let flags = [
            "--era",
            era,
            "--pid",
            pid.to_str().unwrap(),
            "--count",
            count.to_str().unwrap(),
        ];
        toml += &zoo(&format!("pipe{n}"), &flags);
        toml += &at(&format!("web{n}"), &web[n].url());
    }
    let gateway = settled(&(toml + "[mcp]\nhealth_interval = \"500ms\"\n")).await;
    let names = ["pipe0", "pipe1", "web0", "web1"];
    let over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = names
        .iter()
        .flat_map(|server| (0..4).map(move |worker| (*server, worker)))
        .map(|(server, worker)| {
            let (gateway, over) = (gateway.clone(), Arc::clone(&over));
            async move { load(&gateway, server, worker, &over).await }
        })
        .collect();
    let havoc = async {
        let mut dice = Dice(SEED);
        for round in 0..ROUNDS {
            tokio::time::sleep(Duration::from_millis(200 + dice.roll(400))).await;
            match dice.roll(4) {
                n @ 0..2 => kill(&path(&format!("pid{n}"))),
                n => web[usize::try_from(n - 2).unwrap()].restart(),
            }
            for name in names {
                eventually(
                    &format!("{name} heals in round {round} (seed {SEED})"),
                    SOON,
                    async || call(&gateway, &format!("{name}_echo"), "{}").await.ok(),
                )
                .await;
            }
        }
        over.store(true, Ordering::Relaxed);
    };
    let (counts, ()) = tokio::join!(join_all(workers), havoc);
    let good: usize = counts.iter().map(|(good, _)| good).sum();
    assert!(good > 100, "{good} good calls");
    for name in names {
        reaches(&gateway, name, State::Healthy).await;
        for n in 0..50 {
            let arguments = format!(r#"{{"n":{n}}}"#);
            assert_eq!(
                text(&gateway, &format!("{name}_echo"), &arguments).await,
                arguments,
                "no call after healing fails"
            );
        }
    }
    stop(gateway).await;
    let ran = names.map(|name| sleeps_in(&path(name)));
    let asked: usize = counts.iter().map(|(_, sleeps)| sleeps).sum();
    assert!(
        ran.iter().sum::<usize>() <= asked,
        "{ran:?} of {asked} ran: some twice"
    );
}

fn sleeps_in(ledger: &Path) -> usize {
    let text = std::fs::read_to_string(ledger).unwrap();
    text.lines()
        .filter(|line| *line == "tools/call sleep")
        .count()
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_starts_and_stops_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pid");
    let mut started = Vec::new();
    let mut after_ten = 0;
    for round in 0..100 {
        let gateway = settled(&zoo("zoo", &["--pid", pids.to_str().unwrap()])).await;
        assert_eq!(text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
        started.push(
            std::fs::read_to_string(&pids)
                .unwrap()
                .trim()
                .parse::<u32>()
                .unwrap(),
        );
        stop(gateway).await;
        if round == 9 {
            after_ten = resident();
        }
    }
    assert!(
        started.iter().all(|&pid| !toolgate_testkit::alive(pid)),
        "a server outlived its gateway"
    );
    let kib = resident();
    // Other tests run in this process too, so the bound is wide; a leak of a connection's buffers
    // in each round would be wider.
    assert!(
        kib < after_ten + 150 * 1024,
        "memory grew from {after_ten} to {kib} KiB"
    );
}
