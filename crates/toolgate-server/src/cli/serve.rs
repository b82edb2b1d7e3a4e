//! `toolgate serve`

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::{Environment, Gateway, Store};
use toolgate_core::Config;
use toolgate_core::config::{Finding, Listen, Severity};

use super::signals::Signals;
use super::{ConfigFlag, say};
use crate::configuration::{Files, Keeper};
use crate::files;
use crate::http::auth::GivenKey;
use crate::http::guard::Guard;
use crate::http::{self, App};
use crate::telemetry::{Logs, Traces};

/// How long requests and calls under way may take to end.
const DRAIN: Duration = Duration::from_secs(10);

/// How long the servers' processes may take to end after that.
const END: Duration = Duration::from_secs(8);

#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigFlag,
    /// Address to listen on; other than loopback needs an admin key [default: 127.0.0.1]
    #[arg(long, env = "TOOLGATE_HOST")]
    host: Option<String>,
    /// Port to listen on; 0 takes a free one and prints it [default: 8080]
    #[arg(long, env = "TOOLGATE_PORT")]
    port: Option<u16>,
    /// Where to keep data [default: $XDG_DATA_HOME/toolgate]
    #[arg(long, env = "TOOLGATE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Key that opens /api; `auto` makes one and keeps it in the data directory
    #[arg(
        long,
        env = "TOOLGATE_ADMIN_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    admin_key: Option<String>,
}

impl Serve {
    pub(super) async fn run(self, logs: &Logs<'_>) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let traces = logs.start_with_traces(&environment)?;
        let ended = self.serve(environment, &traces).await;
        traces.stop().await;
        ended
    }

    async fn serve(self, environment: Environment, traces: &Traces) -> anyhow::Result<ExitCode> {
        let documents = self.config.documents(&environment)?;
        let (config, findings) = Config::load(&documents)?;
        findings.iter().for_each(log);
        for document in &documents {
            tracing::info!(file = document.name, "configuration");
        }
        let named = self
            .data_dir
            .clone()
            .or_else(|| config.listen.data_dir.clone());
        let data_dir = files::data_dir(named, &environment)?;
        let given_key = self.admin_key(&config, &environment, &data_dir)?;
        let admin_key = given_key.as_ref().map(GivenKey::digest);
        if config.listen.public_url.is_some() && admin_key.is_none() {
            bail!(
                "with `public_url` set, others reach the gateway through a proxy, so it needs an admin key: set TOOLGATE_ADMIN_KEY (`auto` makes one)"
            );
        }
        let listener = self.listen(&config, admin_key.is_some()).await?;
        let address = listener.local_addr()?;

        let guard = Guard::new(&config.listen, address);
        let login = given_key.and_then(|key| key.login_link(&page(&config.listen, address)));
        let store = Store::open(&data_dir).await?;
        let files = Files {
            named: self.config.config.clone(),
            chosen: self.config.environment.clone(),
            environment: environment.clone(),
        };
        let (keeper, config) = Keeper::load(files, documents, store.clone()).await?;
        if !config.keys.is_empty() && admin_key.is_none() {
            tracing::warn!(
                "there are callers' keys but no admin key, so whoever is on this machine can change and approve everything by leaving the key away; set TOOLGATE_ADMIN_KEY (`auto` makes one)"
            );
        }
        let builder = Gateway::builder(config)
            .is_script_worker()
            .environment(environment)
            .store(store);
        let builder = match traces.tracer() {
            Some(tracer) => builder.tracer(tracer),
            None => builder,
        };
        let gateway = builder.start().await?;
        let stop = CancellationToken::new();
        let (configuration, keeping) = keeper.start(gateway.clone(), stop.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(keeping);
        let app = App::new(gateway.clone(), configuration, guard, admin_key);
        let mut signals = Signals::new()?;
        say(&format!("listening on http://{address}"))?;
        tracing::info!(%address, "listening");
        invite(login.as_deref());

        let server = http::serve(listener, app, stop.clone());
        tokio::pin!(server);
        tokio::select! {
            () = &mut server => {}
            () = signals.next() => {}
        }
        tracing::info!(
            "stopping: {} s for requests under way, a second signal hastens it",
            DRAIN.as_secs()
        );
        stop.cancel();
        end(server, &tasks, &gateway, &mut signals).await;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    fn admin_key(
        &self,
        config: &Config,
        environment: &Environment,
        data_dir: &std::path::Path,
    ) -> anyhow::Result<Option<GivenKey>> {
        // An empty variable is what `${KEY:-}` leaves behind: it says nothing.
        let given = self.admin_key.as_ref().filter(|key| !key.is_empty());
        let configured = match (given, &config.listen.admin_key) {
            (Some(key), _) => Some(key.clone()),
            (None, Some(secret)) => Some(
                secret
                    .resolve(&|name| environment.get(name))
                    .context("`admin_key`")?,
            ),
            (None, None) => None,
        };
        match configured.as_deref() {
            None => Ok(None),
            Some("") => bail!("`admin_key` is empty; set a key, or `auto`, or remove it"),
            Some("auto") => GivenKey::kept_in(data_dir).map(Some),
            Some(key) => Ok(Some(GivenKey::Chosen(key.to_owned()))),
        }
    }

    async fn listen(&self, config: &Config, has_key: bool) -> anyhow::Result<TcpListener> {
        let host = self
            .host
            .as_deref()
            .or(config.listen.host.as_deref())
            .unwrap_or("127.0.0.1");
        let port = self.port.or(config.listen.port).unwrap_or(8080);
        let ip: IpAddr = match host {
            "localhost" => IpAddr::from([127, 0, 0, 1]),
            host => host.trim_matches(['[', ']']).parse().with_context(|| {
                format!("`{host}` is no address to listen on; try 127.0.0.1 or 0.0.0.0")
            })?,
        };
        if !ip.is_loopback() && !has_key {
            bail!(
                "listening on {ip} lets others in, so it needs an admin key: set TOOLGATE_ADMIN_KEY (`auto` makes one), or listen on 127.0.0.1"
            );
        }
        let address = SocketAddr::from((ip, port));
        TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address}; is another gateway running? `--port 0` takes a free port")
        })
    }
}

/// Lets what is under way end. A second signal hastens it, a third one does not wait at all.
async fn end(
    server: Pin<&mut impl Future<Output = ()>>,
    tasks: &TaskTracker,
    gateway: &Gateway,
    signals: &mut Signals,
) {
    let drained = async {
        let _ = tokio::time::timeout(DRAIN, server).await;
        tasks.close();
        tasks.wait().await;
        gateway.stop(Duration::from_millis(100)).await;
    };
    let hastened = tokio::select! {
        ended = tokio::time::timeout(DRAIN + END, drained) => ended.is_err(),
        () = signals.next() => true,
    };
    if hastened {
        // Whoever signals once more wants the end at any price.
        tokio::select! {
            _ = tokio::time::timeout(END, gateway.stop(Duration::ZERO)) => {}
            () = signals.next() => {}
        }
    }
}

/// Where the page is, for a browser.
fn page(listen: &Listen, address: SocketAddr) -> String {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let here = SocketAddr::from((ip, address.port()));
    let public = listen.public_url.as_ref().map(ToString::to_string);
    public.unwrap_or_else(|| format!("http://{here}"))
}

/// Shows the login link to a person. A key must not reach a file of logs, where the line that
/// names its file has to do.
fn invite(login: Option<&str>) {
    let mut output = std::io::stderr();
    if let Some(link) = login.filter(|_| output.is_terminal()) {
        let _ = writeln!(output, "\nopen {link}\n");
    }
}

fn log(finding: &Finding) {
    match finding.severity {
        Severity::Warning => tracing::warn!("{}: {}", finding.place, finding.message),
        Severity::Error => tracing::error!("{}: {}", finding.place, finding.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_where_a_browser_finds_it() {
        let at = |address: &str| page(&Listen::default(), address.parse().unwrap());
        assert_eq!(at("0.0.0.0:8080"), "http://127.0.0.1:8080");
        assert_eq!(at("[::]:8080"), "http://[::1]:8080");
        assert_eq!(at("127.0.0.1:1"), "http://127.0.0.1:1");
        let public = Listen {
            public_url: Some("https://tools.example/gate/".parse().unwrap()),
            ..Listen::default()
        };
        let public = page(&public, "127.0.0.1:1".parse().unwrap());
        let link = GivenKey::Kept("a b".to_owned()).login_link(&public);
        assert_eq!(link.as_deref(), Some("https://tools.example/gate/#key=a+b"));
        assert!(
            GivenKey::Chosen("k".to_owned())
                .login_link(&public)
                .is_none()
        );
    }
}
