//! The socket in the data directory, on which the process that uses it serves the same HTTP API as over TCP.
//! Through it, `toolgate mcp` and the command line find a gateway without knowing its port. The directory and
//! the socket are private, and connections of other users are refused.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The process that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOwner {
    /// `toolgate serve`.
    Serve,
    /// `toolgate mcp`, which ends with its client.
    Standalone,
}

/// A listening socket. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
}

impl SocketOwner {
    const ALL: [Self; 2] = [Self::Serve, Self::Standalone];

    /// Returns the path of the socket in a data directory.
    pub(crate) fn path(self, data_dir: &Path) -> PathBuf {
        data_dir.join(match self {
            Self::Serve => "serve.sock",
            Self::Standalone => "mcp.sock",
        })
    }
}

impl LocalListener {
    /// Listens in a data directory, which this process must have locked.
    pub(crate) fn bind(data_dir: &Path, owner: SocketOwner) -> io::Result<Self> {
        // Nobody else listens, so these were left behind.
        for path in SocketOwner::ALL.map(|owner| owner.path(data_dir)) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let path = owner.path(data_dir);
        let listener = UnixListener::bind(&path)?;
        let listener = Self { listener, path };
        fs::set_permissions(&listener.path, Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Accepts a connection of the user who runs this process, or of the superuser; `None` for others.
    pub(crate) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        let own = rustix::process::geteuid().as_raw();
        Ok((user == own || user == 0).then_some(stream))
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        // Fails if the directory was removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the process that listens in a data directory, if there is one.
pub(crate) fn find_owner(data_dir: &Path) -> Option<SocketOwner> {
    let mut owners = SocketOwner::ALL.into_iter();
    owners.find(|owner| BlockingStream::connect(owner.path(data_dir)).is_ok())
}
