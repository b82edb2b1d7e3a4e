//! Files that this process has inherited. Servers must not inherit them in turn: whatever started the gateway
//! may have left sockets, directories or files with secrets open.

/// Marks all open files but the standard streams, so that they are closed when another program is executed.
/// Does nothing on systems other than Linux.
pub fn close_on_exec() {
    #[cfg(target_os = "linux")]
    linux::close_on_exec();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::fd::RawFd;

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};

    pub(super) fn close_on_exec() {
        let Ok(entries) = fs::read_dir("/proc/self/fd") else {
            return; // without a mounted `/proc`, there is no list
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let files: Vec<RawFd> = names.filter_map(|name| name.parse().ok()).collect();
        for file in files.into_iter().filter(|file| *file > 2) {
            // Fails for the list itself, which is closed by now.
            let _ = fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        }
    }
}
