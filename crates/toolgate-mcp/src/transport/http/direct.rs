//! A minimal HTTP/1.1 client for servers reached without TLS and without a proxy.
//!
//! The caller's future drives the connection. No background task sits between a request and its
//! socket, which avoids the task wake-ups that dominate the cost of a pooled client. Idle
//! connections are checked before reuse.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use reqwest::{Response, ResponseBuilderExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;
use url::Url;

use super::errors::{innermost_source, lost_error, not_sent_error};
use crate::transport::RequestError;

/// Maximum age of an idle connection, and maximum number of them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
const MAX_IDLE_CONNECTIONS: usize = 512;
/// Interval between sweeps for expired idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of remaining body frames read to make a connection reusable.
const MAX_DRAINED_FRAMES: usize = 4;
/// TCP keepalive interval; the same as reqwest's default.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

type PostRequest = Request<Full<Bytes>>;

/// Client for one URL; clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct DirectClient(Arc<Pool>);

struct Pool {
    connector: HttpConnector,
    uri: Uri,
    host: HeaderValue,
    /// Most recently used last.
    idle: Mutex<Vec<PooledConnection>>,
}

/// An open connection.
struct PooledConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: Connection<TokioIo<TcpStream>, Full<Bytes>>,
    last_used: Instant,
}

/// A response body that drives its connection until the body ends.
struct DrivenBody {
    body: Incoming,
    /// Never locked; the mutex only makes the type `Sync`.
    connection: Mutex<Option<PooledConnection>>,
    pool: Arc<Pool>,
}

/// Reasons why a connection yielded no response.
enum SendError {
    /// Nothing was sent, so the request can be repeated on another connection.
    Unsent {
        request: Box<PostRequest>,
        error: RequestError,
    },
    /// The request may have been executed.
    Failed(RequestError),
}

impl DirectClient {
    /// Creates a client; `None` if the URL has no host.
    pub(super) fn new(url: &Url, connect_timeout: Duration) -> Option<Self> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
        connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        connector.set_keepalive_retries(Some(3));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(KEEPALIVE_INTERVAL * 2));
        let uri: Uri = url.as_str().parse().ok()?;
        let host = HeaderValue::from_str(uri.authority()?.as_str()).ok()?;
        Some(Self(Arc::new(Pool {
            connector,
            uri,
            host,
            idle: Mutex::default(),
        })))
    }

    /// Sends a POST request. `url` is the client's URL, to be reported by the response.
    pub(super) async fn post(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, RequestError> {
        let pool = &self.0;
        let path = pool.uri.path_and_query().cloned();
        headers.insert(HOST, pool.host.clone());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
        *request.headers_mut() = headers;
        while let Some(connection) = pool.take_idle() {
            match connection.send(request, pool).await {
                Ok(response) => return to_reqwest_response(response, url),
                // The idle connection had closed; try the next one.
                Err(SendError::Unsent {
                    request: unsent, ..
                }) => request = *unsent,
                Err(SendError::Failed(error)) => return Err(error),
            }
        }
        let connection = pool.connect().await?;
        match connection.send(request, pool).await {
            Ok(response) => to_reqwest_response(response, url),
            Err(SendError::Unsent { error, .. } | SendError::Failed(error)) => Err(error),
        }
    }

    /// Periodically removes expired idle connections until `stop` is cancelled.
    pub(super) async fn sweep_idle(self, stop: CancellationToken) {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        while stop.run_until_cancelled(interval.tick()).await.is_some() {
            self.sweep();
        }
    }

    /// Removes idle connections that have expired or that the server has closed.
    fn sweep(&self) {
        self.0.idle().retain_mut(PooledConnection::is_reusable);
    }
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        self.idle.lock()
    }

    /// Takes the most recently used connection that is still reusable.
    fn take_idle(&self) -> Option<PooledConnection> {
        loop {
            let mut connection = self.idle().pop()?;
            if connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    fn put_idle(&self, mut connection: PooledConnection) {
        connection.last_used = Instant::now();
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
    }

    async fn connect(&self) -> Result<PooledConnection, RequestError> {
        let mut connector = self.connector.clone();
        let stream = connector.call(self.uri.clone()).await;
        let stream = stream.map_err(|error| not_sent_error(&innermost_source(&error)))?;
        let (sender, driver) = http1::handshake(stream)
            .await
            .map_err(|error| not_sent_error(&innermost_source(&error)))?;
        Ok(PooledConnection {
            sender,
            driver,
            last_used: Instant::now(),
        })
    }
}

impl PooledConnection {
    /// Sends a request, driving the connection meanwhile.
    async fn send(
        mut self,
        request: PostRequest,
        pool: &Arc<Pool>,
    ) -> Result<http::Response<DrivenBody>, SendError> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let mut ended = false;
        // The connection must not be polled again once it has ended.
        let answer = poll_fn(|context| {
            ended = ended || self.driver_ended(context);
            answer.as_mut().poll(context)
        });
        match answer.await {
            Ok(response) => Ok(response.map(|body| DrivenBody {
                body,
                connection: Mutex::new((!ended).then_some(self)),
                pool: Arc::clone(pool),
            })),
            Err(mut error) => {
                let cause = innermost_source(error.error());
                Err(match error.take_message() {
                    Some(request) => SendError::Unsent {
                        request: Box::new(request),
                        error: not_sent_error(&cause),
                    },
                    None => SendError::Failed(lost_error(&cause)),
                })
            }
        }
    }

    /// Polls the connection; returns whether it has ended.
    fn driver_ended(&mut self, context: &mut Context<'_>) -> bool {
        Pin::new(&mut self.driver).poll(context).is_ready()
    }

    /// Returns whether it can carry another request.
    fn is_reusable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.last_used.elapsed() < IDLE_TIMEOUT
            && !self.driver_ended(&mut context)
            && self.sender.is_ready()
    }
}

impl DrivenBody {
    fn connection(&mut self) -> &mut Option<PooledConnection> {
        self.connection.get_mut()
    }

    /// Polls the next frame, and returns the connection to the pool at the end of the body.
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let connection = self.connection();
        if connection
            .as_mut()
            .is_some_and(|connection| connection.driver_ended(context))
        {
            *connection = None;
        }
        let next = Pin::new(&mut self.body).poll_frame(context);
        if matches!(next, Poll::Ready(None))
            && let Some(mut connection) = self.connection().take()
            && connection.is_reusable()
        {
            self.pool.put_idle(connection);
        }
        next
    }
}

impl Body for DrivenBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.get_mut().next(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A caller that found its response in a stream stops reading. If the body ends within a few
/// frames, the connection can be reused.
impl Drop for DrivenBody {
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..MAX_DRAINED_FRAMES {
            let is_returned = self.connection().is_none();
            if is_returned || !matches!(self.next(&mut context), Poll::Ready(Some(Ok(_)))) {
                return;
            }
        }
    }
}

/// Converts to a reqwest response, so that both clients share the rest of the code.
fn to_reqwest_response(
    response: http::Response<DrivenBody>,
    url: &Url,
) -> Result<Response, RequestError> {
    let (head, body) = response.into_parts();
    let mut builder = http::Response::builder()
        .status(head.status)
        .url(url.clone());
    if let Some(headers) = builder.headers_mut() {
        *headers = head.headers;
    }
    builder
        .body(reqwest::Body::wrap(body))
        .map(Response::from)
        .map_err(|error| RequestError::Malformed(error.to_string()))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream as Stream};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";
    const END: &str = "0\r\n\r\n";

    /// A server that answers every request with the same bytes and optionally closes.
    struct Server {
        url: Url,
        connections: Arc<AtomicUsize>,
    }

    impl Server {
        fn start(answer: String, closes: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let connections: Arc<AtomicUsize> = Arc::default();
            let accepted = Arc::clone(&connections);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    accepted.fetch_add(1, Ordering::SeqCst);
                    let answer = answer.clone();
                    thread::spawn(move || serve(stream.unwrap(), &answer, closes));
                }
            });
            Self {
                url: format!("http://{address}/mcp").parse().unwrap(),
                connections,
            }
        }

        fn direct(&self) -> DirectClient {
            DirectClient::new(&self.url, Duration::from_secs(5)).unwrap()
        }

        async fn ask(&self, direct: &DirectClient) -> Result<Response, RequestError> {
            let body = Bytes::from_static(b"{}");
            direct.post(&self.url, HeaderMap::new(), body).await
        }

        fn connections(&self) -> usize {
            self.connections.load(Ordering::SeqCst)
        }
    }

    /// Each request is small enough to arrive in a single read.
    fn serve(mut stream: Stream, answer: &str, closes: bool) {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
            let request = String::from_utf8_lossy(&buffer).to_lowercase();
            assert!(
                request.starts_with("post /mcp http/1.1\r\n") && request.contains("\r\nhost: 127.")
            );
            stream.write_all(answer.as_bytes()).unwrap();
            if closes {
                return;
            }
        }
    }

    async fn eventually(mut holds: impl FnMut() -> bool) {
        while !holds() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn idle_connection_is_reused_until_it_expires() {
        let server = Server::start(WHOLE.to_owned(), false);
        let direct = server.direct();
        for _ in 0..3 {
            let answer = server.ask(&direct).await.unwrap();
            assert_eq!(answer.url(), &server.url);
            assert_eq!(answer.bytes().await.unwrap(), "ok");
        }
        assert_eq!((server.connections(), direct.0.idle().len()), (1, 1));
        let (one, other) = tokio::join!(server.ask(&direct), server.ask(&direct));
        assert_eq!(
            server.connections(),
            2,
            "concurrent requests use separate connections"
        );
        drop((one, other));
        direct
            .0
            .idle()
            .iter_mut()
            .for_each(|connection| connection.last_used -= IDLE_TIMEOUT);
        direct.sweep();
        assert!(direct.0.idle().is_empty(), "expired");
    }

    #[tokio::test]
    async fn connection_closed_by_the_server_is_not_reused() {
        let server = Server::start(WHOLE.to_owned(), true);
        let direct = server.direct();
        for connections in 1..4 {
            let answer = server.ask(&direct).await.unwrap();
            assert_eq!(answer.bytes().await.unwrap(), "ok");
            assert_eq!(server.connections(), connections);
            eventually(|| {
                direct.sweep();
                direct.0.idle().is_empty()
            })
            .await;
        }
    }

    #[tokio::test]
    async fn dropped_stream_returns_its_connection_if_it_has_ended() {
        for (answer, idle) in [(format!("{STREAM}{END}"), 1), (STREAM.to_owned(), 0)] {
            let server = Server::start(answer, false);
            let direct = server.direct();
            let mut answer = server.ask(&direct).await.unwrap();
            assert_eq!(answer.chunk().await.unwrap().unwrap(), "ok");
            drop(answer);
            assert_eq!(direct.0.idle().len(), idle);
        }
    }

    #[tokio::test]
    async fn unreachable_server_is_not_sent_and_broken_response_is_lost() {
        let server = Server::start(WHOLE.to_owned(), false);
        let unreachable: Url = "http://127.0.0.1:9/".parse().unwrap();
        let direct = DirectClient::new(&unreachable, Duration::from_secs(5)).unwrap();
        let error = server.ask(&direct).await.unwrap_err();
        assert!(matches!(error, RequestError::NotSent(_)), "{error:?}");
        let broken = Server::start("nonsense\r\n\r\n".to_owned(), true);
        let error = broken.ask(&broken.direct()).await.unwrap_err();
        assert!(matches!(error, RequestError::Lost(_)), "{error:?}");
    }
}
