//! Namespaces: hide the gateway's files and other processes, and take the network away.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities,
};
use toolgate_core::config::NetworkAccess;

use super::super::Profile;
use super::super::supervisor::Supervision;
use super::proc_mounts::other_proc_mounts;
use super::{Measure, Mechanism, Outcome, work_places};

/// Flags of mounts of `/proc`. Within a user namespace, those that a mount had before must stay.
const PROC_FLAGS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Directories in `/dev` that contain no devices, or only terminals.
const FOREIGN_DIRECTORIES: [&str; 4] = ["shm", "pts", "mqueue", "hugepages"];

/// Enters the namespaces that the profile needs. Reports on the measures that they enforce.
pub(super) fn apply(profile: &Profile, supervision: &Supervision) -> Vec<(Measure, Outcome)> {
    let network = profile.strict.as_ref().map(|strict| strict.network);
    let network = network.filter(|_| profile.measures.contains(&Measure::Network));
    let hides = profile.measures.contains(&Measure::DataHidden);
    let has_pid_namespace = supervision.has_pid_namespace();
    if !profile.namespaces || !(hides || network.is_some() || has_pid_namespace) {
        return Vec::new();
    }
    let mut outcomes = Vec::new();
    let entered = enter(network.is_some(), profile);
    if has_pid_namespace {
        // First, because the kernel refuses this once a part of `/proc` is covered.
        let mounted = entered.clone().and_then(|()| mount_proc());
        let outcome = mounted.map(|()| Mechanism::PidNamespace);
        let measures = [Measure::DescendantsStopped, Measure::SettingsIsolated];
        let wanted = measures
            .into_iter()
            .filter(|measure| profile.measures.contains(measure));
        outcomes.extend(wanted.map(|measure| (measure, outcome.clone())));
    }
    if hides {
        let hidden = entered.clone().and_then(|()| hide(&profile.hidden));
        outcomes.push((
            Measure::DataHidden,
            hidden.map(|()| Mechanism::MountNamespace),
        ));
    }
    if let Some(network) = network {
        let set_up = entered.and_then(|()| match network {
            NetworkAccess::Loopback => enable_loopback(),
            NetworkAccess::Off | NetworkAccess::On => Ok(()),
        });
        outcomes.push((
            Measure::Network,
            set_up.map(|()| Mechanism::NetworkNamespace),
        ));
    }
    outcomes
}

/// Puts the processes that this one starts from now on into a PID namespace. Returns whether that needed a user
/// namespace, in which they have all capabilities until they give them up.
pub(crate) fn enter_pid_namespace(profile: &Profile) -> Result<bool, String> {
    let owns_user_namespace = unshare_with_user(CloneFlags::CLONE_NEWPID, profile)?;
    if owns_user_namespace {
        // Without this, the programs of a user other than root would have none.
        keep_capabilities().map_err(|error| {
            format!("capabilities of the user namespace cannot be passed on: {error}")
        })?;
    }
    Ok(owns_user_namespace)
}

fn keep_capabilities() -> rustix::io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            inheritable: now.permitted,
            ..now
        },
    )?;
    for capability in now.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

fn enter(needs_network: bool, profile: &Profile) -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNS;
    flags.set(CloneFlags::CLONE_NEWNET, needs_network);
    unshare_with_user(flags, profile)?;
    // Those of the supervisor's user namespace must not reach the server.
    clear_ambient_capability_set()
        .map_err(|error| format!("capabilities cannot be given up: {error}"))?;
    // Mounts of the system still appear here, but none of these leaves.
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(|error| format!("no permission to change mounts: {error}"))
}

/// Enters namespaces, also one of users if they need it. Returns whether they did.
fn unshare_with_user(mut flags: CloneFlags, profile: &Profile) -> Result<bool, String> {
    // A root that may mount keeps its view of other users; everybody else needs a user namespace.
    let may_mount = rustix::thread::capabilities(None)
        .is_ok_and(|now| now.effective.contains(CapabilitySet::SYS_ADMIN));
    // A user namespace has no other users to switch to.
    if !may_mount && getuid().is_root() && profile.measures.contains(&Measure::User) {
        return Err("with `user`, namespaces need the capability SYS_ADMIN".to_owned());
    }
    flags.set(CloneFlags::CLONE_NEWUSER, !may_mount);
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(flags).map_err(|error| format!("no permission for namespaces: {error}"))?;
    if !may_mount {
        let mapped = fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
            .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")));
        mapped.map_err(|error| format!("the user namespace cannot be set up: {error}"))?;
    }
    Ok(!may_mount)
}

/// Shows only the processes of the PID namespace in `/proc`. Where others are also visible, as in a container
/// with the `/proc` of its host, nothing can be written.
fn mount_proc() -> Result<(), String> {
    mount("proc", "/proc", "proc", PROC_FLAGS, None)
        .map_err(|error| format!("`/proc` cannot be mounted for a PID namespace: {error}"))?;
    for path in other_proc_mounts() {
        make_read_only(&path)
            .map_err(|error| format!("`{}` cannot be made read-only: {error}", path.display()))?;
    }
    Ok(())
}

/// Covers files and directories with empty ones.
fn hide(hidden: &[PathBuf]) -> Result<(), String> {
    let is_hidden = |place: &PathBuf| hidden.iter().any(|path| place.starts_with(path));
    if let Some(place) = work_places().into_iter().find(is_hidden) {
        return Err(format!(
            "the server works in `{}`, which is a part of the gateway's data; set its `cwd`, `HOME` or `TMPDIR` to another directory",
            place.display()
        ));
    }
    for path in hidden {
        let covered = if path.is_dir() {
            cover_directory(path)
        } else {
            mount_bind("/dev/null", path)
        };
        covered.map_err(|error| format!("`{}` cannot be hidden: {error}", path.display()))?;
    }
    if getuid().is_root() {
        cover_devices(Path::new("/dev"))
            .and_then(|()| protect_kernel_settings())
            .map_err(|error| format!("devices and settings of the kernel: {error}"))?;
    }
    Ok(())
}

fn cover_directory(path: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("tmpfs", path, "tmpfs", flags, c"size=4k,mode=555")
}

/// Covers block devices, through which root could read every file.
fn cover_devices(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if FOREIGN_DIRECTORIES
            .iter()
            .any(|name| entry.file_name() == *name)
        {
            continue;
        }
        if kind.is_block_device() {
            mount_bind("/dev/null", entry.path())?;
        } else if kind.is_dir() {
            cover_devices(&entry.path())?;
        }
    }
    Ok(())
}

/// Makes settings of the kernel read-only, some of which make it execute programs as root.
fn protect_kernel_settings() -> io::Result<()> {
    for path in ["/proc/sys", "/proc/sysrq-trigger"].map(Path::new) {
        if path.exists() {
            mount_bind(path, path)?;
            make_read_only(path)?;
        }
    }
    Ok(())
}

/// Makes a mount of `/proc` or of a part of it read-only.
fn make_read_only(path: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | PROC_FLAGS;
    rustix::mount::mount_remount(path, flags, "")
}

/// Turns on the loopback interface of a new network namespace.
fn enable_loopback() -> Result<(), String> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    /// Of the loopback interface in every network namespace.
    const INDEX: u32 = 1;
    const HEADER_LEN: u32 = 16;
    const BODY_LEN: u32 = 16;
    let mut message = Vec::new();
    message.extend((HEADER_LEN + BODY_LEN).to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender, family, padding and type.
    message.extend([0; 12]);
    message.extend(INDEX.to_ne_bytes());
    // The flags, and which of them change.
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    let sent = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Protocol 0 is that of routes and interfaces.
        None,
    )
    .and_then(|socket| rustix::net::send(&socket, &message, rustix::net::SendFlags::empty()));
    sent.map_err(|error| format!("the loopback interface cannot be enabled: {error}"))?;
    // The kernel has handled the message when `send` returns.
    std::net::TcpListener::bind("127.0.0.1:0")
        .map(drop)
        .map_err(|error| format!("the loopback interface cannot be used: {error}"))
}
