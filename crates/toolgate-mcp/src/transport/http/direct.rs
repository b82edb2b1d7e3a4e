//! Requests to servers that are reached without TLS and without a proxy.
//!
//! Whoever asks drives the connection: no task stands between a request and its socket, so that
//! none has to be woken on the way there and back, which is most of what a client costs. A
//! connection without a request waits for the next one, and is looked at before it is used again.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use reqwest::{Response, ResponseBuilderExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;
use url::Url;

use super::failure::{innermost, lost, not_sent};
use crate::transport::RequestError;

/// How long a connection is kept for the next request, and how many are.
const IDLE: Duration = Duration::from_secs(90);
const MOST_IDLE: usize = 512;
/// How often those are looked at that nobody uses.
const LOOK: Duration = Duration::from_secs(30);
/// Pieces of a body that are read although nobody wants them.
const FEW: usize = 4;
/// How often the system looks whether the other side is still there, as reqwest has it.
const ALIVE: Duration = Duration::from_secs(15);

type Asked = Request<Full<Bytes>>;

/// One address; clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Direct(Arc<Pool>);

struct Pool {
    connector: HttpConnector,
    uri: Uri,
    host: HeaderValue,
    /// The one that was used last at the end.
    idle: Mutex<Vec<Link>>,
}

/// An open connection.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    driver: Connection<TokioIo<TcpStream>, Full<Bytes>>,
    used: Instant,
}

/// The body of an answer, which drives the connection until it has come to its end.
struct Driven {
    body: Incoming,
    /// Locked by nobody: it makes the link one that threads may share.
    link: Mutex<Option<Link>>,
    pool: Arc<Pool>,
}

impl Direct {
    /// None if the URL has no host.
    pub(super) fn new(url: &Url, connect_timeout: Duration) -> Option<Self> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(ALIVE));
        connector.set_keepalive_interval(Some(ALIVE));
        connector.set_keepalive_retries(Some(3));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(ALIVE * 2));
        let uri: Uri = url.as_str().parse().ok()?;
        let host = HeaderValue::from_str(uri.authority()?.as_str()).ok()?;
        Some(Self(Arc::new(Pool {
            connector,
            uri,
            host,
            idle: Mutex::default(),
        })))
    }

    /// `url` is the same address, as answers name it.
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
        while let Some(link) = pool.kept() {
            match link.send(request, pool).await {
                Ok(response) => return Ok(named(response, url)),
                // Its connection had ended meanwhile.
                Err((Some(unsent), _)) => request = unsent,
                Err((None, error)) => return Err(error),
            }
        }
        let link = pool.connect().await?;
        let response = link.send(request, pool).await;
        response
            .map(|response| named(response, url))
            .map_err(|(_, error)| error)
    }

    /// Keeps no connection for longer than is good, until `stop`.
    pub(super) async fn tended(self, stop: CancellationToken) {
        let mut looks = tokio::time::interval(LOOK);
        while stop.run_until_cancelled(looks.tick()).await.is_some() {
            self.sweep();
        }
    }

    /// Lets go of connections that nobody has used for long, or that the server has closed.
    fn sweep(&self) {
        self.0.idle().retain_mut(Link::is_fit);
    }
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> Option<Link> {
        loop {
            let mut link = self.idle().pop()?;
            if link.is_fit() {
                return Some(link);
            }
        }
    }

    fn keep(&self, mut link: Link) {
        link.used = Instant::now();
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push(link);
        }
    }

    async fn connect(&self) -> Result<Link, RequestError> {
        let mut connector = self.connector.clone();
        let stream = connector.call(self.uri.clone()).await;
        let stream = stream.map_err(|error| not_sent(&innermost(&error)))?;
        let (sender, driver) = http1::handshake(stream)
            .await
            .map_err(|error| not_sent(&innermost(&error)))?;
        Ok(Link {
            sender,
            driver,
            used: Instant::now(),
        })
    }
}

impl Link {
    /// Sends a request; gives it back if it was not sent.
    async fn send(
        mut self,
        request: Asked,
        pool: &Arc<Pool>,
    ) -> Result<http::Response<Driven>, (Option<Asked>, RequestError)> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let mut ended = false;
        let answer = poll_fn(|context| {
            ended = ended || self.driver_ended(context);
            answer.as_mut().poll(context)
        });
        match answer.await {
            Ok(response) => Ok(response.map(|body| Driven {
                body,
                link: Mutex::new((!ended).then_some(self)),
                pool: Arc::clone(pool),
            })),
            Err(mut error) => {
                let unsent = error.take_message();
                let told = innermost(error.error());
                let error = match &unsent {
                    Some(_) => not_sent(&told),
                    None => lost(&told),
                };
                Err((unsent, error))
            }
        }
    }

    fn driver_ended(&mut self, context: &mut Context<'_>) -> bool {
        Pin::new(&mut self.driver).poll(context).is_ready()
    }

    /// Whether it can carry another request.
    fn is_fit(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.used.elapsed() < IDLE && !self.driver_ended(&mut nobody) && self.sender.is_ready()
    }
}

impl Driven {
    fn link(&mut self) -> &mut Option<Link> {
        let link = self.link.get_mut();
        link.unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let link = self.link();
        if link.as_mut().is_some_and(|link| link.driver_ended(context)) {
            *link = None;
        }
        let next = Pin::new(&mut self.body).poll_frame(context);
        if matches!(next, Poll::Ready(None))
            && let Some(mut link) = self.link().take()
            && link.is_fit()
        {
            self.pool.keep(link);
        }
        next
    }
}

impl Body for Driven {
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

/// Whoever found the answer in a stream does not read on. If next to nothing comes behind it, the
/// connection can be kept.
impl Drop for Driven {
    fn drop(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        for _ in 0..FEW {
            let is_over = self.link().is_none();
            if is_over || !matches!(self.next(&mut nobody), Poll::Ready(Some(Ok(_)))) {
                return;
            }
        }
    }
}

fn named(response: http::Response<Driven>, url: &Url) -> Response {
    let (head, body) = response.into_parts();
    let mut named = http::Response::builder()
        .status(head.status)
        .url(url.clone());
    if let Some(headers) = named.headers_mut() {
        *headers = head.headers;
    }
    let named = named.body(reqwest::Body::wrap(body));
    named.unwrap_or_default().into()
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

    /// A server that answers every request with the same bytes, and closes if it says so.
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

        fn direct(&self) -> Direct {
            Direct::new(&self.url, Duration::from_secs(5)).unwrap()
        }

        async fn ask(&self, direct: &Direct) -> Result<Response, RequestError> {
            let body = Bytes::from_static(b"{}");
            direct.post(&self.url, HeaderMap::new(), body).await
        }

        fn connections(&self) -> usize {
            self.connections.load(Ordering::SeqCst)
        }
    }

    /// Each request is small enough to come at once.
    fn serve(mut stream: Stream, answer: &str, closes: bool) {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
            let asked = String::from_utf8_lossy(&buffer).to_lowercase();
            assert!(
                asked.starts_with("post /mcp http/1.1\r\n") && asked.contains("\r\nhost: 127.")
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
    async fn a_connection_carries_one_request_after_the_other() {
        let server = Server::start(WHOLE.to_owned(), false);
        let direct = server.direct();
        for _ in 0..3 {
            let answer = server.ask(&direct).await.unwrap();
            assert_eq!(answer.url(), &server.url);
            assert_eq!(answer.bytes().await.unwrap(), "ok");
        }
        assert_eq!((server.connections(), direct.0.idle().len()), (1, 1));
        let (one, other) = tokio::join!(server.ask(&direct), server.ask(&direct));
        assert_eq!(server.connections(), 2, "each has its own");
        drop((one, other));
        direct
            .0
            .idle()
            .iter_mut()
            .for_each(|link| link.used -= IDLE);
        direct.sweep();
        assert!(direct.0.idle().is_empty(), "too old");
    }

    #[tokio::test]
    async fn one_that_the_server_has_closed_is_not_used_again() {
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
    async fn a_stream_whose_end_has_come_gives_its_connection_back() {
        for (answer, kept) in [(format!("{STREAM}{END}"), 1), (STREAM.to_owned(), 0)] {
            let server = Server::start(answer, false);
            let direct = server.direct();
            let mut answer = server.ask(&direct).await.unwrap();
            assert_eq!(answer.chunk().await.unwrap().unwrap(), "ok");
            drop(answer);
            assert_eq!(direct.0.idle().len(), kept);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_reached_was_not_sent() {
        let server = Server::start(WHOLE.to_owned(), false);
        let nobody: Url = "http://127.0.0.1:9/".parse().unwrap();
        let direct = Direct::new(&nobody, Duration::from_secs(5)).unwrap();
        let error = server.ask(&direct).await.unwrap_err();
        assert!(matches!(error, RequestError::NotSent(_)), "{error:?}");
        let deaf = Server::start("nonsense\r\n\r\n".to_owned(), true);
        let error = deaf.ask(&deaf.direct()).await.unwrap_err();
        assert!(matches!(error, RequestError::Lost(_)), "{error:?}");
    }
}
