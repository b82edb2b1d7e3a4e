//! Namespaces: hide the gateway's files, and take the network away.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{getgid, getuid};
use rustix::thread::CapabilitySet;
use toolgate_core::config::NetworkAccess;

use super::super::Profile;
use super::{Measure, Mechanism, Outcome, work_places};

/// Directories in `/dev` that contain no devices, or only terminals.
const FOREIGN_DIRECTORIES: [&str; 4] = ["shm", "pts", "mqueue", "hugepages"];

/// Enters the namespaces that the profile needs. Reports on the measures that they enforce.
pub(super) fn apply(profile: &Profile) -> Vec<(Measure, Outcome)> {
    let network = profile.strict.as_ref().map(|strict| strict.network);
    let network = network.filter(|_| profile.measures.contains(&Measure::Network));
    let hides = profile.measures.contains(&Measure::DataHidden);
    if !profile.namespaces || !(hides || network.is_some()) {
        return Vec::new();
    }
    let mut outcomes = Vec::new();
    let entered = enter(network.is_some(), profile);
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

fn enter(needs_network: bool, profile: &Profile) -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNS;
    flags.set(CloneFlags::CLONE_NEWNET, needs_network);
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
    // Mounts of the system still appear here, but none of these leaves.
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(|error| format!("no permission to change mounts: {error}"))
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
            // Within a user namespace, flags that a mount had before must stay.
            let flags = MountFlags::BIND
                | MountFlags::RDONLY
                | MountFlags::NOSUID
                | MountFlags::NODEV
                | MountFlags::NOEXEC;
            rustix::mount::mount_remount(path, flags, "")?;
        }
    }
    Ok(())
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
