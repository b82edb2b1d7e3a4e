//! Switches to another user.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, fchown};

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use toolgate_core::config::SandboxUser;

use super::{Mechanism, Outcome};

/// A user with its groups.
#[derive(Clone, Debug)]
pub(super) struct Account {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// Looks up a user. A number without an account is its own and only group.
pub(super) fn find(user: &SandboxUser) -> Result<Account, String> {
    let (found, shown) = match user {
        SandboxUser::Name(name) => (User::from_name(name), name.clone()),
        SandboxUser::Id(id) => (User::from_uid(Uid::from_raw(*id)), id.to_string()),
    };
    let found = found.map_err(|error| format!("user `{shown}` cannot be looked up: {error}"))?;
    let account = match (found, user) {
        (Some(found), _) => {
            let name = CString::new(found.name).map_err(|error| error.to_string())?;
            let groups = getgrouplist(&name, found.gid);
            Account {
                uid: found.uid,
                gid: found.gid,
                groups: groups.map_err(|error| format!("groups of user `{shown}`: {error}"))?,
            }
        }
        (None, SandboxUser::Id(id)) => Account {
            uid: Uid::from_raw(*id),
            gid: Gid::from_raw(*id),
            groups: vec![Gid::from_raw(*id)],
        },
        (None, SandboxUser::Name(_)) => return Err(format!("there is no user `{shown}`")),
    };
    if account.uid.is_root() {
        return Err(format!("user `{shown}` is root; choose another"));
    }
    Ok(account)
}

/// Becomes the user for good.
pub(super) fn switch(account: Account) -> Outcome {
    if !Uid::effective().is_root() {
        return Err("only root can run servers as another user".to_owned());
    }
    let Account { uid, gid, groups } = account;
    give_pipes(uid, gid).map_err(|error| format!("standard streams: {error}"))?;
    // The user last, since only root may change groups.
    setgroups(&groups)
        .and_then(|()| setresgid(gid, gid, gid))
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(|error| format!("no permission to switch to user {uid}: {error}"))?;
    // The kernel does the same unless the gateway was started with unusual settings.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|error| error.to_string())?;
    if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
        return Err("the process can become root again".to_owned());
    }
    Ok(Mechanism::UserId)
}

/// Makes the user the owner of the pipes to the gateway, so that `/dev/stderr` and the like can be opened.
fn give_pipes(uid: Uid, gid: Gid) -> io::Result<()> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let file = std::fs::File::from(stream.try_clone_to_owned()?);
        if file.metadata()?.file_type().is_fifo() {
            fchown(&file, Some(uid.as_raw()), Some(gid.as_raw()))?;
        }
    }
    Ok(())
}
