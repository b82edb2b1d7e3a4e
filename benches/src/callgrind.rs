//! Instructions a request, counted by valgrind's callgrind: slow, and nearly the same on every
//! machine, however busy it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::case::{self, At, Case};
use crate::gateway::Gateway;
use crate::load::{Pace, Plan};
use crate::measure::{Mock, Subject, load, settled};
use crate::process::Tree;

/// Requests that are counted of each case, and a fifth of that before.
pub(crate) const TIMES: u64 = 300;
/// What is written behind the answers belongs to them.
const BEHIND: Duration = Duration::from_millis(700);

/// A gateway whose instructions are counted.
#[derive(Debug)]
pub(crate) struct Counted {
    gateway: Gateway,
    folder: PathBuf,
    times: u64,
    dumps: usize,
    _mock: Mock,
}

/// What a case came to.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) a_request: u64,
    /// Where each of them was, for `callgrind_annotate`.
    pub(crate) file: PathBuf,
}

impl Counted {
    /// Whether it can be counted here.
    pub(crate) async fn is_possible() -> bool {
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--version").stdout(Stdio::null());
        valgrind.status().await.is_ok()
    }

    /// Counts nothing before the first request, which is sooner over like that.
    pub(crate) async fn start(
        binary: &Path,
        at: At,
        folder: &Path,
        times: u64,
    ) -> anyhow::Result<Self> {
        let counted = Self::start_with(&["--instr-atstart=no"], binary, at, folder, times).await?;
        counted.control("--instr=on").await?;
        Ok(counted)
    }

    pub(crate) async fn start_with(
        flags: &[&str],
        binary: &Path,
        at: At,
        folder: &Path,
        times: u64,
    ) -> anyhow::Result<Self> {
        if !Self::is_possible().await {
            bail!("valgrind is not installed");
        }
        let folder = fs::canonicalize(folder)?;
        let mock = Mock::start(0).await?;
        let out = format!(
            "--callgrind-out-file={}",
            folder.join("callgrind.out").display()
        );
        let mut wrapper = vec!["valgrind", "-q", "--tool=callgrind", &out];
        wrapper.extend(flags);
        let gateway =
            Gateway::start_under(&wrapper, binary, &case::setup(at), &mock.address).await?;
        gateway.connected(case::servers().len()).await?;
        // It goes on to write down what its servers offer.
        let tree = Tree::only(gateway.id());
        settled(&tree, Duration::from_secs(2), Duration::from_secs(90)).await;
        Ok(Self {
            gateway,
            folder,
            times,
            dumps: 0,
            _mock: mock,
        })
    }

    pub(crate) async fn count(&mut self, case: &Case) -> anyhow::Result<Count> {
        self.ask(case, self.times.div_ceil(5), 1).await?;
        self.control("--zero").await?;
        self.ask(case, self.times, 1).await?;
        let (file, text) = self.dump().await?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total: u64 = total.context("the dump has no total")?.trim().parse()?;
        Ok(Count {
            a_request: total / self.times.max(1),
            file,
        })
    }

    /// What was counted since the last time.
    pub(crate) async fn dump(&mut self) -> anyhow::Result<(PathBuf, String)> {
        self.control("--dump").await?;
        self.dumps += 1;
        let file = self.folder.join(format!("callgrind.out.{}", self.dumps));
        let text = fs::read_to_string(&file)?;
        Ok((file, text))
    }

    pub(crate) async fn ask(
        &self,
        case: &Case,
        times: u64,
        connections: usize,
    ) -> anyhow::Result<()> {
        let plan = Plan {
            address: self.gateway.address.clone(),
            exchange: case.gate.clone(),
            pace: Pace::Closed,
            connections,
            seconds: 120.0,
            most: times,
        };
        let subject = Subject {
            address: self.gateway.address.clone(),
            tree: None,
        };
        let (seen, _) = load(&plan, &subject).await?;
        if seen.answered != times {
            bail!(
                "`{}`: {} of {times} answers are right: {:?}",
                case.name,
                seen.answered,
                seen.told
            );
        }
        tokio::time::sleep(BEHIND).await;
        Ok(())
    }

    async fn control(&self, word: &str) -> anyhow::Result<()> {
        let output = Command::new("callgrind_control")
            .arg(word)
            .arg(self.gateway.id().to_string())
            .output()
            .await
            .context("callgrind_control")?;
        let said = String::from_utf8_lossy(&output.stdout);
        match said.contains("OK") {
            true => Ok(()),
            false => bail!("callgrind_control {word}: {said}"),
        }
    }
}
