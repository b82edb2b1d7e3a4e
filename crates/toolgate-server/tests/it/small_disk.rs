//! A disk for the data directory that a test can break and repair while the gateway runs.
//!
//! It is a real tmpfs of a few megabytes, mounted without privileges in a user and mount namespace that a
//! holder process keeps alive across restarts. For I/O errors, and where namespaces are not available, the
//! size of files that the gateway may write is limited to zero instead.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use toolgate_testkit::is_alive;

use crate::crash::kill_count;
use crate::gate::{TestGate, clean_environment, serve_args, wait_for_url};

/// Size of the tmpfs: room for the database, its log and both intent logs, without the space for the data of long runs.
const DISK_MEGABYTES: u64 = 16;
/// Kills in a long run whose data takes about a megabyte.
const KILLS_PER_MEGABYTE: u64 = 8;
const FILLER: &str = "filler";

/// A small disk, mounted at `data` in a folder.
pub(crate) struct SmallDisk {
    /// Process that keeps the namespaces alive until its stdin closes; `None` without namespaces.
    holder: Option<Child>,
    /// Without namespaces: whether the gateway may write nothing.
    is_limited: Cell<bool>,
}

/// Reason why writes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// No space is left.
    Full,
    /// Every write is an error.
    WriteError,
}

/// A gateway whose data directory is on a [`SmallDisk`].
pub(crate) struct DiskGate {
    pub(crate) gate: TestGate,
    pub(crate) disk: SmallDisk,
}

impl SmallDisk {
    /// Prepares `data` in a folder.
    fn new(folder: &Path, fault: DiskFault) -> Self {
        let data = folder.join("data");
        fs::create_dir(&data).unwrap();
        let holder = match fault {
            DiskFault::Full => mount_tmpfs(&data),
            DiskFault::WriteError => None,
        };
        Self {
            holder,
            is_limited: Cell::new(false),
        }
    }

    /// Returns a command that runs a program on the disk, in a folder.
    fn command(&self, folder: &Path) -> Command {
        // The signal would end a process that exceeds the limit on file sizes.
        let limit = if self.is_limited.get() {
            "0"
        } else {
            "unlimited"
        };
        let script =
            format!(r#"trap "" XFSZ; ulimit -S -f {limit}; cd "$1" && shift && exec "$@""#);
        let mut command = match &self.holder {
            Some(holder) => {
                let mut command = Command::new("nsenter");
                let target = holder.id().to_string();
                command.args([
                    "--user",
                    "--preserve-credentials",
                    "--mount",
                    "--target",
                    &target,
                    "sh",
                ]);
                command
            }
            None => Command::new("sh"),
        };
        command.args(["-c", &script, "sh"]).arg(folder);
        command
    }

    /// Returns a path by which the data directory can be reached from outside the namespace.
    fn data(&self, gate: &TestGate) -> PathBuf {
        let data = gate.folder.path().join("data");
        match &self.holder {
            Some(holder) => {
                let root = format!("/proc/{}/root", holder.id());
                Path::new(&root).join(data.strip_prefix("/").unwrap())
            }
            None => data,
        }
    }

    /// Makes every write that needs space fail.
    fn fill(&self, gate: &TestGate) {
        if self.holder.is_none() {
            self.is_limited.set(true);
            return limit_file_size(gate, "0");
        }
        let path = self.data(gate).join(FILLER);
        let mut filler = OpenOptions::new().create(true).append(true).open(path);
        let filler = filler.as_mut().unwrap();
        let page = [0; 4096];
        while filler.write_all(&page).is_ok() {}
    }

    /// Undoes [`Self::fill`].
    fn free(&self, gate: &TestGate) {
        if self.holder.is_none() {
            self.is_limited.set(false);
            return limit_file_size(gate, "unlimited");
        }
        fs::remove_file(self.data(gate).join(FILLER)).unwrap();
    }

    /// Mounts the file system again with an option, `ro` or `rw`. No file on it may be open for writing.
    /// Returns whether that is possible here.
    pub(crate) fn remount(&self, gate: &TestGate, option: &str) -> bool {
        if self.holder.is_none() {
            return false;
        }
        let options = format!("remount,{option}");
        // With a source, the other options of the mount are not repeated, which is not allowed in a namespace.
        let mount = self
            .command(gate.folder.path())
            .args(["mount", "-t", "tmpfs", "-o", &options, "tmpfs", "data"])
            .status();
        assert!(mount.unwrap().success());
        true
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

impl DiskGate {
    /// Starts the gateway with this `toolgate.toml`.
    pub(crate) fn start(toml: &str, fault: DiskFault) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let disk = SmallDisk::new(folder.path(), fault);
        let (child, url) = spawn(&disk, &folder);
        Self {
            gate: TestGate::new(child, url, folder),
            disk,
        }
    }

    /// Returns a path by which the data directory can be reached.
    pub(crate) fn data(&self) -> PathBuf {
        self.disk.data(&self.gate)
    }

    pub(crate) fn fill(&self) {
        self.disk.fill(&self.gate);
    }

    pub(crate) fn free(&self) {
        self.disk.free(&self.gate);
    }

    /// Stops the gateway with SIGTERM.
    pub(crate) async fn stop(&mut self) {
        self.gate.signal("-TERM");
        let code = self.gate.wait_for_exit().await;
        assert_eq!(code, Some(0), "{}", self.gate.log());
    }

    /// Starts a stopped gateway again on the same disk.
    pub(crate) fn relaunch(&mut self) {
        (self.gate.child, self.gate.url) = spawn(&self.disk, &self.gate.folder);
    }

    /// Starts a stopped gateway again, but does not wait until it listens.
    pub(crate) fn spawn_without_waiting(&self) -> Child {
        let folder = self.gate.folder.path();
        clean_environment(self.disk.command(folder), folder)
            .args(serve_args())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Runs a second gateway on the same disk, which is expected to exit by itself.
    pub(crate) fn serve_to_exit(&self) -> Output {
        let folder = self.gate.folder.path();
        clean_environment(self.disk.command(folder), folder)
            .args(serve_args())
            .output()
            .unwrap()
    }
}

fn spawn(disk: &SmallDisk, folder: &TempDir) -> (Child, String) {
    let folder = folder.path();
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"));
    let mut child = clean_environment(disk.command(folder), folder)
        .args(serve_args())
        .stdout(Stdio::piped())
        .stderr(log.unwrap())
        .spawn()
        .unwrap();
    let url = wait_for_url(&mut child, folder);
    (child, url)
}

/// Mounts a tmpfs in new namespaces. Returns the process that holds them, or says that a limit on file sizes
/// is used in its place.
fn mount_tmpfs(folder: &Path) -> Option<Child> {
    let megabytes = DISK_MEGABYTES + kill_count(0) / KILLS_PER_MEGABYTE;
    let script = r#"mount -t tmpfs -o "size=$2m,mode=700" tmpfs "$1" && echo mounted && exec cat"#;
    let holder = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .args(["sh", "-c", script, "sh"])
        .arg(folder)
        .arg(megabytes.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut holder) = holder {
        let mut line = String::new();
        let stdout = holder.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        if line.trim() == "mounted" {
            return Some(holder);
        }
        holder.wait().unwrap();
    }
    // Not `eprintln`, whose output is captured for passing tests.
    let note = "NOTE no user namespaces here: a limit on file sizes stands in for a full disk\n";
    std::io::stderr().write_all(note.as_bytes()).unwrap();
    None
}

/// Limits the size of files that the gateway may write from now on, if it runs.
fn limit_file_size(gate: &TestGate, bytes: &str) {
    let pid = gate.child.id();
    if !is_alive(pid) {
        return;
    }
    let limit = Command::new("prlimit")
        .args(["--pid", &pid.to_string()])
        .arg(format!("--fsize={bytes}:"))
        .status();
    assert!(limit.unwrap().success());
}
