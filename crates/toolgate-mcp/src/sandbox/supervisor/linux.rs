//! The supervisor and the first process of a PID namespace.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, SigSet};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid,
    kill_process, pidfd_open, set_child_subreaper, set_dumpable_behavior, wait,
};

use super::super::launcher::RESTRICT_FLAG;
use super::super::measures::enter_pid_namespace;
use super::super::{ALLOCATOR_SETTINGS, Mechanism, Profile};
use super::{INIT_FLAG, Supervision};
use crate::processes;

/// The program of this process, also if the file on disk has been replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Time that a server has to exit after the gateway has ended, which closed its input.
const ABANDONED_GRACE_PERIOD: Duration = Duration::from_secs(3);
/// Interval at which children are killed if none of them exits meanwhile.
const KILL_INTERVAL: Duration = Duration::from_millis(50);
/// Added to the number of a signal in the exit code of a process that cannot end itself with it.
const SIGNAL_CODE_OFFSET: i32 = 128;

/// Prepares the end of descendants, and reports how it will be achieved.
pub(crate) fn set_up(profile: &Profile) -> Supervision {
    if profile.pid_namespace {
        let entered = enter_pid_namespace(profile);
        return Supervision {
            owns_user_namespace: entered.as_ref().is_ok_and(|is_own| *is_own),
            outcome: entered.map(|_| Mechanism::PidNamespace),
        };
    }
    let outcome = if processes::is_supported() {
        set_child_subreaper(Some(getpid()))
            .map(|()| Mechanism::Subreaper)
            .map_err(|error| error.to_string())
    } else {
        Err("there is no list of child processes in `/proc`".to_owned())
    };
    Supervision {
        outcome,
        owns_user_namespace: false,
    }
}

/// Starts the launcher that becomes the server, and waits until nothing of it is left. Exits as the server did.
pub(crate) fn run(
    profile: &Profile,
    supervision: &Supervision,
    args: Vec<OsString>,
) -> io::Result<ExitCode> {
    // Keeps servers from tracing this process where Landlock does not.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let gateway = open_gateway(profile.gateway)?;
    let init = if supervision.has_pid_namespace() {
        Some(start_init()?)
    } else {
        None
    };
    let server = Command::new(OWN_PROGRAM)
        .arg(RESTRICT_FLAG)
        .args(args)
        .spawn()?;
    // The server alone decides when its pipes close.
    leave_streams()?;
    let mut exits = ExitSignals::new()?;
    let status = wait_server(&server, gateway, &mut exits)?;
    match init {
        Some(mut init) => {
            // It exits, whereupon the kernel kills the namespace. That is complete once the status of every
            // process was taken, also that of the server, which is a child of this process.
            drop(init.stdin.take());
            while wait(WaitOptions::empty()).is_ok() {}
        }
        None => kill_children(&mut exits)?,
    }
    Ok(exit_like(status))
}

/// Runs the first process of a PID namespace, which waits for orphans and for the end of its supervisor.
pub(crate) fn run_init() -> io::Result<ExitCode> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut exits = ExitSignals::new()?;
    let supervisor = io::stdin();
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if exits.wait(Some(supervisor.as_fd()), None)? == Woken::Watched {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Starts the first process of the PID namespace. It ends when its standard input closes, which the end of
/// this process does in any case. (A signal on the death of the parent could be missed while it starts.)
fn start_init() -> io::Result<Child> {
    Command::new(OWN_PROGRAM)
        .arg(INIT_FLAG)
        .env_clear()
        .env(ALLOCATOR_SETTINGS.0, ALLOCATOR_SETTINGS.1)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Returns a descriptor that tells when the gateway has ended.
///
/// The kernel could also send a signal then, but it does so when the thread ends that started this process.
fn open_gateway(gateway: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(gateway.cast_signed());
    let pid = pid.ok_or_else(|| io::Error::other("the profile names no gateway"))?;
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    // Only now it is certain that the number was not given to another process.
    if getppid() != Some(pid) {
        return Err(io::Error::other("the gateway has ended"));
    }
    Ok(descriptor)
}

fn leave_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Waits until the server has exited. Returns `None` if the gateway has ended and the server did not follow.
fn wait_server(
    server: &Child,
    gateway: OwnedFd,
    exits: &mut ExitSignals,
) -> io::Result<Option<WaitStatus>> {
    let mut gateway = Some(gateway);
    let mut deadline: Option<Instant> = None;
    loop {
        while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
            if pid.as_raw_pid().cast_unsigned() == server.id() {
                return Ok(Some(status));
            }
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
        let watched = gateway.as_ref().map(OwnedFd::as_fd);
        if exits.wait(watched, left)? == Woken::Watched {
            gateway = None;
            deadline = Some(Instant::now() + ABANDONED_GRACE_PERIOD);
        }
    }
}

/// Kills children until there are none. The orphans that they leave become children of this process, so that no
/// number is used which could already belong to another process.
fn kill_children(exits: &mut ExitSignals) -> io::Result<()> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(_) => return Ok(()), // there are no more children
            Ok(Some(_)) => continue,
            Ok(None) => {}
        }
        for child in processes::list_children() {
            // An error means that it became another user's, which `no_new_privileges` prevents.
            let _ = kill_process(child, Signal::KILL);
        }
        exits.wait(None, Some(KILL_INTERVAL))?;
    }
}

/// Ends this process with the signal that ended the server, or returns its exit code.
fn exit_like(status: Option<WaitStatus>) -> ExitCode {
    let Some(status) = status else {
        return ExitCode::FAILURE;
    };
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(number)) => {
            if let Ok(signal) = signal::Signal::try_from(number) {
                // Only this one: others may be pending, such as the gateway's request to exit.
                let _ = SigSet::from(signal).thread_unblock();
                let _ = signal::raise(signal);
            }
            SIGNAL_CODE_OFFSET + number
        }
        (None, None) => 1,
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Why [`ExitSignals::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// A child exited, or the time is over.
    Other,
    Watched,
}

/// Tells when children have exited.
struct ExitSignals(SignalFd);

impl ExitSignals {
    /// Blocks all signals, since those that ask the server to exit also reach this process.
    fn new() -> io::Result<Self> {
        SigSet::all().thread_block()?;
        let child = SigSet::from(signal::Signal::SIGCHLD);
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self(SignalFd::with_flags(&child, flags)?))
    }

    /// Waits until a child has exited, until the watched descriptor is readable or closed, or for some time.
    fn wait(
        &mut self,
        watched: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> io::Result<Woken> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let own = PollFd::new(&self.0, PollFlags::IN);
        let watched = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut descriptors: Vec<PollFd<'_>> = [own].into_iter().chain(watched).collect();
        poll(&mut descriptors, timeout.as_ref())?;
        let is_watched = descriptors
            .get(1)
            .is_some_and(|watched| !watched.revents().is_empty());
        while let Ok(Some(_)) = self.0.read_signal() {}
        Ok(if is_watched {
            Woken::Watched
        } else {
            Woken::Other
        })
    }
}
