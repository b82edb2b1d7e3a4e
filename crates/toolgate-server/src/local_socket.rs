//! The socket in the data directory, on which the process that uses it serves the same HTTP API as over TCP.
//! Through it, `toolgate mcp` and the command line find a gateway without knowing its port. The directory and
//! the socket are private, and connections of other users are refused. Requests carry a token from a file in the
//! directory: a server whose sandbox hides files by Landlock alone could still connect to the socket, but it
//! cannot read the token.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use rand::distr::{Alphanumeric, SampleString as _};
use tokio::net::{UnixListener, UnixStream};
use toolgate_core::config::Document;
use toolgate_core::hash::sha256_hex;

const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-toolgate-socket-token");
const TOKEN_FILE: &str = "socket.token";
/// Names the configuration files of the process that listens, one per line.
const CONFIG_FILE: &str = "socket.config";
const TOKEN_LENGTH: usize = 43;

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
    token: SocketToken,
}

/// What requests must carry, as a digest, so that comparing takes the same time for every token.
#[derive(Clone, Debug)]
pub(crate) struct SocketToken(String);

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
    /// Listens in a data directory, which this process must have locked. Clients can look up the files that
    /// `documents` were read from.
    pub(crate) fn bind(
        data_dir: &Path,
        owner: SocketOwner,
        documents: &[Document],
    ) -> io::Result<Self> {
        // Nobody else listens, so these were left behind.
        for path in SocketOwner::ALL.map(|owner| owner.path(data_dir)) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let path = owner.path(data_dir);
        let token = SocketToken::load_or_generate(data_dir)?;
        let files = documents
            .iter()
            .filter_map(|document| fs::canonicalize(&document.name).ok());
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        write_private(&data_dir.join(CONFIG_FILE), &files.join("\n"))?;
        let listener = UnixListener::bind(&path)?;
        let listener = Self {
            listener,
            path,
            token,
        };
        fs::set_permissions(&listener.path, Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    pub(crate) fn token(&self) -> &SocketToken {
        &self.token
    }

    /// Accepts a connection of the user who runs this process, or of the superuser; `None` for others.
    pub(crate) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        let own = rustix::process::geteuid().as_raw();
        Ok((user == own || user == 0).then_some(stream))
    }
}

impl SocketToken {
    /// Reads the token of a data directory, which is generated at the first start and kept, so that clients
    /// outlive a restart.
    fn load_or_generate(data_dir: &Path) -> io::Result<Self> {
        let token = match read_token(data_dir) {
            Ok(token) if !token.is_empty() => token,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {
                let token = Alphanumeric.sample_string(&mut rand::rng(), TOKEN_LENGTH);
                write_private(&data_dir.join(TOKEN_FILE), &token)?;
                token
            }
        };
        Ok(Self(sha256_hex(token)))
    }

    /// Removes the token from a request. Returns whether the request carried it.
    pub(crate) fn take_from(&self, headers: &mut HeaderMap) -> bool {
        let given = headers.remove(TOKEN_HEADER);
        given.is_some_and(|given| sha256_hex(given.as_bytes()) == self.0)
    }
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn read_token(data_dir: &Path) -> io::Result<String> {
    let token = fs::read_to_string(data_dir.join(TOKEN_FILE))?;
    Ok(token.trim().to_owned())
}

/// Returns the headers that every request on the socket of a data directory must have.
pub(crate) fn request_headers(data_dir: &Path) -> io::Result<HeaderMap> {
    let token = HeaderValue::from_str(&read_token(data_dir)?);
    let mut token = token.map_err(io::Error::other)?;
    token.set_sensitive(true);
    Ok(HeaderMap::from_iter([(TOKEN_HEADER, token)]))
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        // Fails if the directory was removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns whether the process that listens in a data directory uses a configuration file.
pub(crate) fn is_configured_by(data_dir: &Path, file: &Path) -> bool {
    let used = fs::read_to_string(data_dir.join(CONFIG_FILE)).unwrap_or_default();
    let file = fs::canonicalize(file).map(|file| file.display().to_string());
    file.is_ok_and(|file| used.lines().any(|used| used == file))
}

/// Returns the process that listens in a data directory, if there is one.
pub(crate) fn find_owner(data_dir: &Path) -> Option<SocketOwner> {
    let mut owners = SocketOwner::ALL.into_iter();
    owners.find(|owner| BlockingStream::connect(owner.path(data_dir)).is_ok())
}
