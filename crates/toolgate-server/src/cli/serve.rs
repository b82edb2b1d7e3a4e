//! `toolgate serve`: starts the gateway, and shuts it down in stages on signals.

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use toolgate::{Environment, Gateway};
use toolgate_core::Config;
use toolgate_core::config::{ConfigFinding, Document, ListenSettings, Severity};

use super::signals::ShutdownSignals;
use super::{ConfigFlags, print_line};
use crate::files;
use crate::gateway_process::{GatewayFiles, GatewayProcess, HttpAccess, resolve_admin_key};
use crate::http::auth::KeylessCallers;
use crate::http::guard::HostGuard;
use crate::http::{self, Listeners};
use crate::local_socket::{LocalListener, SocketOwner};
use crate::store_key::StoreKeyFlags;
use crate::telemetry::{LogSettings, TraceExport};

/// Maximum time to wait for servers before the address of the web page is printed.
const MAX_ANNOUNCEMENT_DELAY: Duration = Duration::from_secs(10);

/// Maximum time for in-flight requests and calls to finish at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time after that for the server processes to exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Debug, clap::Args)]
pub(super) struct ServeCommand {
    #[command(flatten)]
    config: ConfigFlags,
    /// Address to listen on; only loopback is possible if the admin key is off [default: 127.0.0.1]
    #[arg(long, env = "TOOLGATE_HOST")]
    host: Option<String>,
    /// Port to listen on; 0 picks a free port and prints it [default: 8080]
    #[arg(long, env = "TOOLGATE_PORT")]
    port: Option<u16>,
    /// Data directory [default: $XDG_DATA_HOME/toolgate]
    #[arg(long, env = "TOOLGATE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// File that contains the admin key, used instead of TOOLGATE_ADMIN_KEY and the configuration's `admin_key`
    #[arg(long, env = "TOOLGATE_ADMIN_KEY_FILE", value_name = "FILE")]
    admin_key_file: Option<PathBuf>,
    #[command(flatten)]
    store_key: StoreKeyFlags,
}

impl ServeCommand {
    pub(super) async fn run(self, logs: &LogSettings<'_>) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let traces = logs.start_with_traces(&environment)?;
        let result = self.serve(environment, &traces).await;
        traces.stop().await;
        result
    }

    async fn serve(
        self,
        environment: Environment,
        traces: &TraceExport,
    ) -> anyhow::Result<ExitCode> {
        let documents = self.config.load_documents(&environment)?;
        let (config, findings) = Config::load(&documents)?;
        findings.iter().for_each(log_finding);
        for document in &documents {
            tracing::info!(file = document.name, "loaded configuration file");
        }
        let data_dir = self
            .data_dir
            .clone()
            .or_else(|| config.listen.data_dir.clone());
        let data_dir = files::data_dir(data_dir, &environment)?;
        let plain_key = resolve_admin_key(
            self.admin_key_file.as_deref(),
            &config.listen,
            &environment,
            &data_dir,
        )?;
        let has_key = !plain_key.is_off();
        check_public_url(&config.listen, has_key)?;
        let listener = self.bind(&config, has_key).await?;
        let address = listener.local_addr()?;

        let guard = HostGuard::new(&config.listen, address);
        let page = page_url(&config.listen, address);
        let page = plain_key.login_link(&page).unwrap_or(page);
        let mut signals = ShutdownSignals::new()?;
        let files = GatewayFiles {
            selection: self.config.selection(),
            data_dir: data_dir.clone(),
            key_files: self.key_files(),
            environment,
        };
        let store = tokio::select! {
            store = files.open_store(&config, &self.store_key) => store?,
            () = signals.recv() => bail!("stopped before the store was open"),
        };
        let socket = bind_socket(&data_dir, &documents);
        if !has_key {
            tracing::warn!(
                "the admin key is off: any process on this machine, including the tools of servers, can administer the gateway by sending no key; remove `admin_key = \"off\"` to get a generated key"
            );
        }
        let access = HttpAccess {
            guard,
            admin_key: plain_key,
            keyless: KeylessCallers::UntilKeysAreRequired,
        };
        let GatewayProcess {
            gateway,
            app,
            stop,
            tasks,
        } = files
            .start(documents, store, access, traces.tracer())
            .await?;
        print_line(&format!("listening on http://{address}"))?;
        tracing::info!(%address, "listening");

        let listeners = Listeners {
            tcp: Some(listener),
            socket,
        };
        let server = http::serve(listeners, app, stop.clone());
        tokio::pin!(server);
        let announcement = announce_page(&gateway, &page);
        tokio::select! {
            () = &mut server => {}
            () = announcement => {}
            () = signals.recv() => {}
        }
        tracing::info!(
            drain_seconds = DRAIN_TIMEOUT.as_secs(),
            "stopping; waiting for requests in flight, send another signal to stop immediately"
        );
        stop.cancel();
        shut_down(server, &tasks, &gateway, &mut signals).await;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    fn key_files(&self) -> Vec<PathBuf> {
        let files = [&self.admin_key_file, &self.store_key.store_key_file];
        files.into_iter().flatten().cloned().collect()
    }

    async fn bind(&self, config: &Config, has_key: bool) -> anyhow::Result<TcpListener> {
        let host = self
            .host
            .as_deref()
            .or(config.listen.host.as_deref())
            .unwrap_or("127.0.0.1");
        let port = self.port.or(config.listen.port).unwrap_or(8080);
        let ip: IpAddr = match host {
            "localhost" => IpAddr::from([127, 0, 0, 1]),
            host => host.trim_matches(['[', ']']).parse().with_context(|| {
                format!("`{host}` is not an IP address to listen on; try 127.0.0.1 or 0.0.0.0")
            })?,
        };
        if !ip.is_loopback() && !has_key {
            bail!(
                "listening on {ip} makes the gateway reachable by others, which requires an admin key; remove `admin_key = \"off\"`, or listen on 127.0.0.1"
            );
        }
        let address = SocketAddr::from((ip, port));
        TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address}; if another gateway is running, stop it or use `--port 0` to pick a free port")
        })
    }
}

/// Fails if others can reach the gateway without an admin key.
fn check_public_url(listen: &ListenSettings, has_key: bool) -> anyhow::Result<()> {
    if listen.public_url.is_some() && !has_key {
        bail!(
            "`public_url` makes the gateway reachable by others through a proxy, which requires an admin key; remove `admin_key = \"off\"`"
        );
    }
    Ok(())
}

/// Listens on the socket in the data directory. The gateway does without where that is not possible.
fn bind_socket(data_dir: &Path, documents: &[Document]) -> Option<LocalListener> {
    LocalListener::bind(data_dir, SocketOwner::Serve, documents)
        .inspect_err(|error| {
            tracing::warn!(%error, "cannot listen on a socket in the data directory; `toolgate mcp` needs --url to reach this gateway");
        })
        .ok()
}

/// Waits for in-flight work to finish. A second signal stops immediately; a third one does not wait for
/// the server processes either.
async fn shut_down(
    server: Pin<&mut impl Future<Output = ()>>,
    tasks: &TaskTracker,
    gateway: &Gateway,
    signals: &mut ShutdownSignals,
) {
    let drained = async {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, server).await;
        tasks.close();
        tasks.wait().await;
        gateway.stop(Duration::from_millis(100)).await;
    };
    let stop_now = tokio::select! {
        result = tokio::time::timeout(DRAIN_TIMEOUT + STOP_TIMEOUT, drained) => result.is_err(),
        () = signals.recv() => true,
    };
    if stop_now {
        tokio::select! {
            _ = tokio::time::timeout(STOP_TIMEOUT, gateway.stop(Duration::ZERO)) => {}
            () = signals.recv() => {}
        }
    }
}

/// Returns the URL at which a browser on this machine reaches the page.
fn page_url(listen: &ListenSettings, address: SocketAddr) -> String {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let local = SocketAddr::from((ip, address.port()));
    let public = listen.public_url.as_ref().map(ToString::to_string);
    public.unwrap_or_else(|| format!("http://{local}"))
}

/// Prints the address of the web page, with the login, if standard error is a terminal. Otherwise the key
/// could end up in a log file. Waits until the servers have started, so that it is not lost among their lines.
/// Does not end, so that it can be waited for beside the server.
async fn announce_page(gateway: &Gateway, page: &str) {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let settled = tokio::time::timeout(MAX_ANNOUNCEMENT_DELAY, gateway.wait_until_settled()).await;
    let mut text = String::from("\n");
    if settled.is_err() {
        let entries = gateway.servers().list().into_iter();
        let starting = entries.filter(|entry| !entry.status().state.is_settled());
        let names: Vec<String> = starting
            .map(|entry| entry.server.name.to_string())
            .collect();
        text.push_str(&format!("still starting: {}\n", names.join(", ")));
    }
    let _ = writeln!(std::io::stderr(), "{text}open {page}\n");
    std::future::pending().await
}

fn log_finding(finding: &ConfigFinding) {
    match finding.severity {
        Severity::Warning | Severity::UnknownName => {
            tracing::warn!(%finding, "configuration warning");
        }
        Severity::Error => tracing::error!(%finding, "configuration error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::auth::AdminKey;

    #[test]
    fn page_url_is_reachable_by_a_local_browser() {
        let at = |address: &str| page_url(&ListenSettings::default(), address.parse().unwrap());
        assert_eq!(at("0.0.0.0:8080"), "http://127.0.0.1:8080");
        assert_eq!(at("[::]:8080"), "http://[::1]:8080");
        assert_eq!(at("127.0.0.1:1"), "http://127.0.0.1:1");
        let public = ListenSettings {
            public_url: Some("https://tools.example/gate/".parse().unwrap()),
            ..ListenSettings::default()
        };
        let public = page_url(&public, "127.0.0.1:1".parse().unwrap());
        let link = AdminKey::Generated("a b".to_owned()).login_link(&public);
        assert_eq!(link.as_deref(), Some("https://tools.example/gate/#key=a+b"));
        assert!(
            AdminKey::Provided("k".to_owned())
                .login_link(&public)
                .is_none()
        );
    }
}
