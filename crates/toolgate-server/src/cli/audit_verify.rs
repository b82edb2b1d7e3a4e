//! `toolgate audit verify` and `toolgate audit export`: check the trail against changes, and export it with
//! its hash chain. Both read the data directory, also while the gateway is running.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::Value;
use toolgate::audit::{AuditVerifier, VerifiedTrail};
use toolgate::store::StoreKey;
use toolgate::{Environment, Gateway, Store};
use toolgate_core::Config;
use toolgate_core::plural::count;

use super::backup::DataDirFlags;
use super::print_line;
use crate::files;

/// Find entries of the audit trail that were removed, changed or reordered
///
/// Exits with status 1 if it finds any. Entries removed at the end of the trail are found by comparison
/// with a copy of its last seal that was kept elsewhere: see `--against`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyCommand {
    #[command(flatten)]
    data: DataDirFlags,
    /// Verify this export (`toolgate audit export`, or `GET /api/audit?format=chain`) instead of the data
    /// directory
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// File of JSON lines with earlier seals: the second sink, a log in JSON, or an earlier export
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// File with a key that sealed the trail, in addition to TOOLGATE_SEAL_KEY, the configuration's
    /// `audit.seal_key` and the key of the store; can be repeated if the key was changed
    #[arg(long = "seal-key-file", value_name = "FILE")]
    seal_key_files: Vec<PathBuf>,
}

/// Print the audit trail with its hash chain, as JSON lines
#[derive(Debug, clap::Args)]
pub(super) struct ExportCommand {
    #[command(flatten)]
    data: DataDirFlags,
}

impl VerifyCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let data = self.data.resolve()?;
        let mut verifier = Gateway::audit_verifier();
        for key in seal_keys(&self.seal_key_files, &data.config, &environment)? {
            verifier = verifier.with_key(&key);
        }
        if let Some(file) = &self.against {
            verifier = add_checkpoints(verifier, file)?;
        }
        let key = data.load_key().await?;
        let result = match &self.file {
            Some(file) => {
                verifier = match &key {
                    StoreKey::Provided(key) => verifier.with_provided_key(key),
                    // The data directory may be on another machine, but its key may be needed.
                    _ => match Store::open_read_only(&data.dir, &key).await {
                        Ok(store) => verifier.with_store_key(&store),
                        Err(_) => verifier,
                    },
                };
                verifier.verify_export(read_lines(file)?)?
            }
            None => {
                let store = Store::open_read_only(&data.dir, &key).await?;
                verifier.with_store_key(&store).verify(&store).await?
            }
        };
        print_result(&result)
    }
}

impl ExportCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let data = self.data.resolve()?;
        let key = data.load_key().await?;
        let store = Store::open_read_only(&data.dir, &key).await?;
        let mut reader = Gateway::audit_verifier().export(&store).await?;
        while let Some(lines) = reader.next_lines().await? {
            for line in lines {
                print_line(&line)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the keys that may have sealed the trail. A flag would show them in the list of processes.
fn seal_keys(
    files: &[PathBuf],
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<Vec<String>> {
    let mut keys = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the seal key in `{}`", file.display()))?;
        keys.push(text.trim().to_owned());
    }
    let variable = environment.get("TOOLGATE_SEAL_KEY");
    keys.extend(variable.filter(|key| !key.is_empty()));
    if let Some(secret) = &config.audit.seal_key {
        keys.push(secret.resolve(&|name| environment.get(name))?);
    }
    Ok(keys)
}

fn print_result(result: &VerifiedTrail) -> anyhow::Result<ExitCode> {
    for problem in &result.problems {
        print_line(&format!("problem: {problem}"))?;
    }
    let listed = result.problems.len() as u64;
    if result.problem_count > listed {
        let more = count(
            result.problem_count - listed,
            "more problem",
            "more problems",
        );
        print_line(&format!("and {more}"))?;
    }
    let end = match &result.end {
        Some((seq, hash)) => format!("; the last entry is {seq} with hash {hash}"),
        None => String::new(),
    };
    let entries = count(result.entries, "entry", "entries");
    let seals = count(result.seals, "seal", "seals");
    print_line(&format!("{entries} and {seals} checked{end}"))?;
    if result.problem_count == 0 {
        print_line("the audit trail is intact")?;
        Ok(ExitCode::SUCCESS)
    } else {
        print_line("the audit trail is NOT intact")?;
        Ok(ExitCode::FAILURE)
    }
}

fn read_lines(file: &Path) -> anyhow::Result<impl Iterator<Item = std::io::Result<String>>> {
    let opened = File::open(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    Ok(BufReader::new(opened).lines())
}

/// Adds the last seal in a file: an object with `seq` and `hash`, or a line of a JSON log with these
/// fields.
fn add_checkpoints(verifier: AuditVerifier, file: &Path) -> anyhow::Result<AuditVerifier> {
    let mut last = None;
    for line in read_lines(file)? {
        let Ok(json) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let fields = if json["fields"].is_object() {
            &json["fields"]
        } else {
            &json
        };
        if let (Some(seq), Some(hash)) = (fields["seq"].as_i64(), fields["hash"].as_str()) {
            last = Some((seq, hash.to_owned()));
        }
    }
    match last {
        Some((seq, hash)) => Ok(verifier.with_checkpoint(seq, &hash)),
        None => bail!(
            "`{}` has no line with a seal (`seq` and `hash`)",
            file.display()
        ),
    }
}
