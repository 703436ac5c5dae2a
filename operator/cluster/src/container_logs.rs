//! Container logs from the kubelet: the last lines, or all lines as a stream.
//!
//! Elsewhere: which containers' logs are read (`cli`, `controllers`), and how lines are shown (`cli`).

use std::pin::Pin;
use std::time::Duration;

use futures::stream::{Stream, try_unfold};
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use objects::Gvk;

use super::connection_pool::ConnectionSlot;
use super::discovery::ApiResourceLocation;
use super::untyped_objects::url_encode;
use super::{ClusterConnection, ClusterError};

/// The most bytes of a line. The rest of the line is dropped.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The query for the last lines of a log.
const LAST_LINES: &str = "tailLines=5&limitBytes=8192";

/// Which lines of a container's log to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether the stream goes on with lines that are printed later.
    pub follows: bool,
    /// Only lines that are not older than this.
    pub since: Option<Duration>,
    /// Only so many of the last lines.
    pub tail: Option<u32>,
}

impl LogOptions {
    /// The query of the request. Each line is requested with its timestamp.
    fn query(self) -> String {
        let mut query = "timestamps=true".to_owned();
        if self.follows {
            query.push_str("&follow=true");
        }
        if let Some(since) = self.since {
            // The API accepts whole seconds, at least one.
            let seconds = since.as_millis().div_ceil(1000).max(1);
            query.push_str(&format!("&sinceSeconds={seconds}"));
        }
        if let Some(lines) = self.tail {
            query.push_str(&format!("&tailLines={lines}"));
        }
        query
    }
}

/// A line that a container printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLogLine {
    /// When the container printed the line. `None` if the kubelet does not say.
    pub at: Option<jiff::Timestamp>,
    /// The text of at most 64 KiB, with the control characters that the container printed.
    pub text: String,
}

impl ContainerLogLine {
    fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = text.strip_suffix('\r').unwrap_or(&text);
        match text.split_once(' ').map(|(at, rest)| (at.parse().ok(), rest)) {
            Some((at @ Some(_), rest)) => Self { at, text: rest.to_owned() },
            // The line is empty, so only its timestamp is there.
            _ if text.parse::<jiff::Timestamp>().is_ok() => {
                Self { at: text.parse().ok(), text: String::new() }
            }
            _ => Self { at: None, text: text.to_owned() },
        }
    }
}

impl ClusterConnection {
    /// The last lines that a container printed, of at most a few KiB. The request is not repeated, because nothing depends on
    /// it.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond, for example because it does not reach the kubelet.
    pub async fn last_lines(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<String, ClusterError> {
        let request = request(namespace, pod, container, LAST_LINES)?;
        Ok(self.unary.request_text(request).await?)
    }

    /// Streams the lines of a container over a connection for watches. Neither the number of lines nor the time is limited.
    /// Only one line is in memory at a time.
    ///
    /// # Errors
    /// The first item is an error if the API server refuses the request or does not respond. A later item is an error if the
    /// connection is lost.
    pub fn lines(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        wanted: LogOptions,
    ) -> impl Stream<Item = Result<ContainerLogLine, ClusterError>> + Send + use<> {
        let request = request(namespace, pod, container, &wanted.query());
        let begin = LogStreamRequest { pool: self.watches.clone(), request: Some(request) };
        try_unfold(
            (begin, None),
            |(mut begin, open): (LogStreamRequest, Option<OpenLogStream>)| async move {
                let mut open = match open {
                    Some(open) => open,
                    None => begin.open().await?,
                };
                let line = next_line(&mut open.body, MAX_LINE_BYTES).await;
                let line = line.map_err(|error| ClusterError::NoAnswer(error.to_string()))?;
                Ok(line.map(|bytes| (ContainerLogLine::of(&bytes), (begin, Some(open)))))
            },
        )
    }
}

/// A log request that was not sent yet.
struct LogStreamRequest {
    pool: super::connection_pool::ConnectionPool,
    request: Option<Result<Request<Vec<u8>>, ClusterError>>,
}

/// A log answer that is being read, with its place on a connection.
struct OpenLogStream {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    _place: ConnectionSlot,
}

impl LogStreamRequest {
    async fn open(&mut self) -> Result<OpenLogStream, ClusterError> {
        let sent = || ClusterError::NoAnswer("the log was requested before".to_owned());
        let request = self.request.take().ok_or_else(sent)??;
        let place = self.pool.place()?;
        let body = place.client().request_stream(request).await?;
        Ok(OpenLogStream { body: Box::pin(body), _place: place })
    }
}

fn request(
    namespace: &str,
    pod: &str,
    container: &str,
    query: &str,
) -> Result<Request<Vec<u8>>, ClusterError> {
    let pods = ApiResourceLocation {
        gvk: Gvk::new("v1", "Pod"),
        plural: "pods".to_owned(),
        namespaced: true,
        watchable: true,
    };
    let pod = pods.path(namespace, Some(pod))?;
    let container = url_encode(container);
    let path = format!("{pod}/log?container={container}&{query}");
    let request = Request::get(&path).body(Vec::new());
    request.map_err(|error| ClusterError::NoAnswer(format!("{path} is not a path: {error}")))
}

/// The next line without its line end, cut to `most` bytes. `None` at the end of the log.
async fn next_line(
    body: &mut (impl AsyncBufRead + Unpin + ?Sized),
    most: usize,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut is_begun = false;
    loop {
        let part = body.fill_buf().await?;
        if part.is_empty() {
            return Ok(is_begun.then_some(line));
        }
        is_begun = true;
        let end = part.iter().position(|byte| *byte == b'\n');
        let text = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        let room = most.saturating_sub(line.len()).min(text.len());
        line.extend_from_slice(text.get(..room).unwrap_or_default());
        let read = end.map_or(part.len(), |at| at + 1);
        body.consume_unpin(read);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use axum::body::Body;
    use futures::io::Cursor;
    use futures::{StreamExt as _, TryStreamExt as _, stream};

    use super::*;
    use crate::fake_cluster::answering;

    #[tokio::test]
    async fn lines_are_bounded_and_the_last_needs_no_end() {
        let mut body = Cursor::new(format!("one\n\n{}\nlast", "x".repeat(100)));
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut body, 10).await.unwrap() {
            lines.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(lines, ["one", "", "xxxxxxxxxx", "last"]);
    }

    #[test]
    fn a_line_has_the_time_of_the_kubelet() {
        let line = ContainerLogLine::of(b"2026-01-01T00:00:00.500000000Z  indented\r");
        assert_eq!(line.at, Some("2026-01-01T00:00:00.5Z".parse().unwrap()));
        assert_eq!(line.text, " indented");
        let nothing = ContainerLogLine::of(b"2026-01-01T01:00:00+01:00");
        assert_eq!((nothing.at.is_some(), nothing.text.as_str()), (true, ""));
        assert_eq!(
            ContainerLogLine::of(b"no time \xff"),
            ContainerLogLine { at: None, text: "no time \u{fffd}".into() }
        );
    }

    #[tokio::test]
    async fn lines_come_while_the_container_still_prints() {
        let asked = Arc::new(Mutex::new(String::new()));
        let recorded = asked.clone();
        let cluster = answering(move |(request, _)| {
            *recorded.lock() = request;
            // This answer does not end.
            let parts = stream::iter([Ok::<_, std::io::Error>("a\nb"), Ok("c\n")]);
            (200, Body::from_stream(parts.chain(stream::pending())))
        });
        let wanted =
            LogOptions { follows: true, since: Some(Duration::from_millis(1500)), tail: Some(10) };
        let cluster = cluster.await;
        let mut lines = std::pin::pin!(cluster.lines("apps", "web-1", "main", wanted));
        for expected in ["a", "bc"] {
            assert_eq!(lines.next().await.unwrap().unwrap().text, expected);
        }
        assert_eq!(
            asked.lock().as_str(),
            "GET /api/v1/namespaces/apps/pods/web-1/log?container=main&timestamps=true&follow=true\
             &sinceSeconds=2&tailLines=10"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_the_first_item_and_the_last() {
        let status = r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "container \"main\" is waiting to start", "reason": "BadRequest", "code": 400}"#;
        let cluster = answering(move |_| (400, Body::from(status))).await;
        let lines = cluster.lines("apps", "web-1", "main", LogOptions::default());
        let error = lines.try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(error.code(), Some(400));
        assert!(error.to_string().contains("waiting to start"), "{error}");
    }
}
