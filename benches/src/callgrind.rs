//! Counts instructions per request with valgrind's callgrind: slow, but nearly independent of the
//! machine and its load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::case::{self, Case, GatewayVariant};
use crate::gateway::Gateway;
use crate::load::{LoadPlan, Pace};
use crate::measure::{LoadTarget, MockProcess, run_load, wait_settled};
use crate::process::ProcessTree;

/// Requests to count per case; a fifth as many are sent first to warm up.
pub(crate) const REQUESTS_PER_CASE: u64 = 300;
/// Wait after the last response, so that work done after responding is counted too.
const TRAILING_WORK_DELAY: Duration = Duration::from_millis(700);

/// A gateway running under callgrind.
#[derive(Debug)]
pub(crate) struct CallgrindGateway {
    gateway: Gateway,
    folder: PathBuf,
    times: u64,
    dumps: usize,
    _mock: MockProcess,
}

/// Instruction count of a case.
#[derive(Debug)]
pub(crate) struct InstructionCount {
    pub(crate) per_request: u64,
    /// Dump for `callgrind_annotate`.
    pub(crate) file: PathBuf,
}

impl CallgrindGateway {
    /// Returns whether valgrind is installed.
    pub(crate) async fn is_possible() -> bool {
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--version").stdout(Stdio::null());
        valgrind.status().await.is_ok()
    }

    /// Starts the gateway with counting off until it is ready, which is faster.
    pub(crate) async fn start(
        binary: &Path,
        variant: GatewayVariant,
        folder: &Path,
        times: u64,
    ) -> anyhow::Result<Self> {
        let counted =
            Self::start_with(&["--instr-atstart=no"], binary, variant, folder, times).await?;
        counted.control("--instr=on").await?;
        Ok(counted)
    }

    pub(crate) async fn start_with(
        flags: &[&str],
        binary: &Path,
        variant: GatewayVariant,
        folder: &Path,
        times: u64,
    ) -> anyhow::Result<Self> {
        if !Self::is_possible().await {
            bail!("valgrind is not installed");
        }
        let folder = fs::canonicalize(folder)?;
        let mock = MockProcess::start(0).await?;
        let out = format!(
            "--callgrind-out-file={}",
            folder.join("callgrind.out").display()
        );
        let mut wrapper = vec!["valgrind", "-q", "--tool=callgrind", &out];
        wrapper.extend(flags);
        let gateway =
            Gateway::start_under(&wrapper, binary, &case::setup(variant), &mock.address).await?;
        gateway.wait_connected(case::servers().len()).await?;
        // The gateway still stores the tool lists of its servers.
        let tree = ProcessTree::single(gateway.pid());
        wait_settled(&tree, Duration::from_secs(2), Duration::from_secs(90)).await;
        Ok(Self {
            gateway,
            folder,
            times,
            dumps: 0,
            _mock: mock,
        })
    }

    pub(crate) async fn count(&mut self, case: &Case) -> anyhow::Result<InstructionCount> {
        self.send_requests(case, self.times.div_ceil(5), 1).await?;
        self.control("--zero").await?;
        self.send_requests(case, self.times, 1).await?;
        let (file, text) = self.dump().await?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total: u64 = total
            .context("callgrind dump has no total")?
            .trim()
            .parse()?;
        Ok(InstructionCount {
            per_request: total / self.times.max(1),
            file,
        })
    }

    /// Dumps the counts since the last dump.
    pub(crate) async fn dump(&mut self) -> anyhow::Result<(PathBuf, String)> {
        self.control("--dump").await?;
        self.dumps += 1;
        let file = self.folder.join(format!("callgrind.out.{}", self.dumps));
        let text = fs::read_to_string(&file)?;
        Ok((file, text))
    }

    pub(crate) async fn send_requests(
        &self,
        case: &Case,
        times: u64,
        connections: usize,
    ) -> anyhow::Result<()> {
        let plan = LoadPlan {
            address: self.gateway.address.clone(),
            exchange: case.gate.clone(),
            pace: Pace::Closed,
            connections,
            seconds: 120.0,
            max_requests: times,
        };
        let target = LoadTarget {
            address: self.gateway.address.clone(),
            tree: None,
        };
        let (seen, _) = run_load(&plan, &target).await?;
        if seen.answered != times {
            bail!(
                "`{}`: only {} of {times} responses are correct: {:?}",
                case.name,
                seen.answered,
                seen.error_samples
            );
        }
        tokio::time::sleep(TRAILING_WORK_DELAY).await;
        Ok(())
    }

    async fn control(&self, flag: &str) -> anyhow::Result<()> {
        let output = Command::new("callgrind_control")
            .arg(flag)
            .arg(self.gateway.pid().to_string())
            .output()
            .await
            .context("cannot run `callgrind_control`")?;
        let output = String::from_utf8_lossy(&output.stdout);
        if output.contains("OK") {
            Ok(())
        } else {
            bail!("`callgrind_control {flag}` failed: {output}")
        }
    }
}
