//! A minimal HTTP/1.1 client, so that tests see the exact bytes that a server sends.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use toolgate_testkit::HttpZoo;

use crate::stdio_zoo::TIMEOUT;

pub(crate) struct HttpReply {
    pub(crate) status: u16,
    headers: String,
    body: String,
    complete: bool,
}

/// An open event stream.
pub(crate) struct EventStream(BufReader<TcpStream>);

impl HttpReply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines();
        lines.find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.body
    }

    /// Returns whether the body is complete according to its headers.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the last message of a JSON body or an event stream.
    pub(crate) fn last_message(&self) -> String {
        match self.header("content-type") {
            Some(kind) if kind.starts_with("text/event-stream") => {
                self.messages().pop().expect("no event")
            }
            _ => self.body.clone(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.last_message()).unwrap()
    }

    /// Returns the data of all events that have any.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.body
            .split("\n\n")
            .filter_map(|event| {
                let data: Vec<&str> = event
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: "))
                    .collect();
                (!data.is_empty()).then(|| data.join("\n"))
            })
            .collect()
    }
}

impl EventStream {
    pub(crate) async fn open(zoo: &HttpZoo, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = connect(zoo, "GET", path, headers, "").await;
        stream.flush().await.unwrap();
        let mut events = Self(BufReader::new(stream));
        // The zoo registers the stream before it sends the head.
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            let read = timeout(TIMEOUT, events.0.read_line(&mut line)).await;
            assert_ne!(read.expect("timed out waiting for the head").unwrap(), 0);
        }
        events
    }

    /// Opens the stream of a POST.
    pub(crate) async fn post(zoo: &HttpZoo, headers: &[(&str, &str)], body: &str) -> Self {
        Self(BufReader::new(
            connect(zoo, "POST", "/mcp", headers, body).await,
        ))
    }

    /// Waits for the stream to end and returns whether no further event arrived.
    pub(crate) async fn ends_without_event(&mut self) -> bool {
        let mut rest = String::new();
        let read = timeout(TIMEOUT, self.0.read_to_string(&mut rest)).await;
        read.is_ok_and(|read| read.is_ok()) && !rest.contains("data: ")
    }

    /// Returns the data of the next event.
    pub(crate) async fn next(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = timeout(TIMEOUT, self.0.read_line(&mut line)).await;
            let read = read.expect("timed out waiting for an event").unwrap();
            assert_ne!(read, 0, "the stream ended");
            if let Some(data) = line.trim_end().strip_prefix("data: ") {
                return data.to_owned();
            }
        }
    }
}

/// Sends one request and reads the whole reply.
pub(crate) async fn send(
    zoo: &HttpZoo,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpReply {
    exchange(zoo.port(), method, path, headers, body).await
}

/// Sends one request to a port and reads the whole reply.
pub(crate) async fn exchange(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpReply {
    let mut stream = send_request(port, method, path, headers, body).await;
    let mut bytes = Vec::new();
    let read = timeout(TIMEOUT, stream.read_to_end(&mut bytes)).await;
    read.expect("timed out waiting for the reply").unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = bytes.split_off(end.expect("no head") + 4);
    let head = String::from_utf8(bytes).unwrap();
    let (line, headers) = head.split_once("\r\n").unwrap();
    let mut reply = HttpReply {
        status: line.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: headers.to_owned(),
        body: String::new(),
        complete: true,
    };
    // Chunks may split a character, so they stay bytes until they are joined.
    let body = if reply.header("transfer-encoding") == Some("chunked") {
        reply.complete = body.ends_with(b"0\r\n\r\n");
        decode_chunked(&body)
    } else {
        let length = reply.header("content-length");
        reply.complete = length.is_none_or(|length| length.parse() == Ok(body.len()));
        body
    };
    reply.body = String::from_utf8(body).unwrap();
    reply
}

/// Posts to `/mcp` with these additional headers.
pub(crate) async fn post(zoo: &HttpZoo, headers: &[(&str, &str)], body: &str) -> HttpReply {
    send(zoo, "POST", "/mcp", headers, body).await
}

pub(crate) async fn connect(
    zoo: &HttpZoo,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    send_request(zoo.port(), method, path, headers, body).await
}

/// Sends one request to a port and returns the stream with the unread reply.
pub(crate) async fn send_request(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream
        .write_all(format!("{head}\r\n{body}").as_bytes())
        .await
        .unwrap();
    stream
}

fn decode_chunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).expect("invalid chunk size");
        if size == 0 {
            break;
        }
        let start = end + 2;
        whole.extend(&body[start..start + size]);
        body = &body[start + size + 2..];
    }
    whole
}
