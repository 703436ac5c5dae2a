//! Many clients of the event stream of a page, as open pages in browsers are.
//!
//! This module opens the streams, and measures when each of them has received a change. `super::measured_pages` serves
//! the page, and `super` makes the changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use e2e::multi_user_web_pages::BrowserCookies;
use reqwest::header::COOKIE;
use reqwest::{Client, RequestBuilder, Response};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

/// How long it may take until a stream is open, or all streams have received a change.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a stream lasts at least. windlass ends a stream after nine minutes, and refuses too many of one user at once.
const MIN_STREAM_LIFETIME: Duration = Duration::from_secs(60);

/// The beginning of the message of an object that says which change it has. Six digits follow.
const CHANGE_PREFIX: &str = "bench-change-";
const CHANGE_DIGITS: usize = 6;

/// The message of an object after a change.
pub(super) fn change_message(number: u32) -> String {
    format!("{CHANGE_PREFIX}{number:06}")
}

/// An event that a client waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StreamEvent {
    /// The page was made, and all parts that differ were sent.
    Read,
    /// A part of the page has the change with this number.
    Change(u32),
    /// The stream has ended, for this reason.
    End(String),
}

/// An event, and the stream that received it.
struct StreamArrival {
    stream: u16,
    at: Instant,
    event: StreamEvent,
}

/// The open streams. They end when this is dropped.
pub(super) struct EventStreams {
    http: Client,
    sender: mpsc::UnboundedSender<StreamArrival>,
    arrivals: mpsc::UnboundedReceiver<StreamArrival>,
    count: u16,
    tasks: JoinSet<()>,
}

impl EventStreams {
    /// No stream yet.
    ///
    /// # Errors
    /// There is no HTTP client.
    pub(super) fn new() -> anyhow::Result<Self> {
        let http = Client::builder().no_proxy().build()?;
        let (sender, arrivals) = mpsc::unbounded_channel();
        Ok(Self { http, sender, arrivals, count: 0, tasks: JoinSet::new() })
    }

    /// How many streams are open.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Opens a stream for a page of a browser, and waits until it has received the page.
    ///
    /// # Errors
    /// A stream ends, or does not receive the page in time.
    pub(super) async fn open(&mut self, url: &str, browser: &BrowserCookies) -> anyhow::Result<()> {
        let stream = self.count;
        self.count += 1;
        let request = self.http.get(url).header(COOKIE, browser.line());
        self.tasks.spawn(keep_open(request, stream, self.sender.clone()));
        let deadline = tokio::time::Instant::now() + ROUND_TIMEOUT;
        loop {
            let arrival = self.next(deadline).await?;
            let arrival = arrival.with_context(|| format!("stream {stream} receives no page"))?;
            if arrival.stream == stream && arrival.event == StreamEvent::Read {
                return Ok(());
            }
        }
    }

    /// Waits until each stream has received a change. It returns the time from `begun` for each stream.
    ///
    /// # Errors
    /// A stream ends, or does not receive the change in time.
    pub(super) async fn delays(
        &mut self,
        number: u32,
        begun: Instant,
    ) -> anyhow::Result<Vec<Duration>> {
        let deadline = tokio::time::Instant::now() + ROUND_TIMEOUT;
        let mut seen = BTreeSet::new();
        let mut delays = Vec::new();
        while delays.len() < usize::from(self.count) {
            let Some(StreamArrival { stream, at, event }) = self.next(deadline).await? else {
                bail!("only {} of {} streams have change {number}", delays.len(), self.count);
            };
            if event == StreamEvent::Change(number) && seen.insert(stream) {
                delays.push(at.saturating_duration_since(begun));
            }
        }
        Ok(delays)
    }

    /// The next event. It is none if no event comes in time.
    async fn next(
        &mut self,
        deadline: tokio::time::Instant,
    ) -> anyhow::Result<Option<StreamArrival>> {
        let Ok(arrival) = timeout_at(deadline, self.arrivals.recv()).await else {
            return Ok(None);
        };
        if let Some(StreamArrival { stream, event: StreamEvent::End(why), .. }) = &arrival {
            bail!("stream {stream} has ended: {why}");
        }
        Ok(arrival)
    }

    /// Drops the events so far.
    ///
    /// # Errors
    /// A stream has ended.
    pub(super) fn forget(&mut self) -> anyhow::Result<()> {
        while let Ok(StreamArrival { stream, event, .. }) = self.arrivals.try_recv() {
            ensure!(!matches!(event, StreamEvent::End(_)), "stream {stream} has ended: {event:?}");
        }
        Ok(())
    }
}

/// Keeps a stream open. If windlass ends it after some minutes, it is opened again at once, as a browser does after a second.
async fn keep_open(
    request: RequestBuilder,
    stream: u16,
    arrivals: mpsc::UnboundedSender<StreamArrival>,
) {
    let why = loop {
        let Some(again) = request.try_clone() else { break "the request has a body".to_owned() };
        let begun = Instant::now();
        let ended = match again.send().await.and_then(Response::error_for_status) {
            Ok(reply) => follow(reply, stream, &arrivals).await,
            Err(error) => break error.to_string(),
        };
        if begun.elapsed() < MIN_STREAM_LIFETIME {
            break ended;
        }
    };
    arrivals.send(StreamArrival { stream, at: Instant::now(), event: StreamEvent::End(why) }).ok();
}

/// Reads a stream until it ends, and returns the reason.
async fn follow(
    mut reply: Response,
    stream: u16,
    arrivals: &mpsc::UnboundedSender<StreamArrival>,
) -> String {
    let mut buffer = EventBuffer::default();
    loop {
        let chunk = match reply.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return "windlass ended it".to_owned(),
            Err(error) => return error.to_string(),
        };
        let at = Instant::now();
        buffer.add(&chunk);
        while let Some(text) = buffer.take() {
            if let Some(event) = event_of(&text)
                && arrivals.send(StreamArrival { stream, at, event }).is_err()
            {
                return "it is not needed any more".to_owned();
            }
        }
    }
}

/// The received bytes of a stream that are not a whole event yet.
#[derive(Default)]
struct EventBuffer {
    bytes: Vec<u8>,
    /// How many bytes have no end of an event. They are not searched again.
    searched: usize,
}

impl EventBuffer {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// Takes the next whole event from the received bytes. An event ends with an empty line. `None` if no whole event is there
    /// yet.
    fn take(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") else {
            self.searched = self.bytes.len().saturating_sub(1);
            return None;
        };
        let event: Vec<u8> = self.bytes.drain(..self.searched + end + 2).collect();
        self.searched = 0;
        Some(String::from_utf8_lossy(&event).into_owned())
    }
}

fn event_of(text: &str) -> Option<StreamEvent> {
    if text.starts_with("event: read\n") {
        return Some(StreamEvent::Read);
    }
    if !text.starts_with("event: part\n") {
        return None;
    }
    let (_, rest) = text.split_once(CHANGE_PREFIX)?;
    rest.get(..CHANGE_DIGITS)?.parse().ok().map(StreamEvent::Change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_chunks_of_any_length() {
        let part = format!("event: part\ndata: {{\"html\":\"<td>{}\"}}\n\n", change_message(7));
        let text = format!("retry: 1000\n\n{part}event: read\nid: 3\ndata: {{}}\n\n: \n\n");
        for length in [1, 7, 1000] {
            let mut buffer = EventBuffer::default();
            let mut events = Vec::new();
            for chunk in text.as_bytes().chunks(length) {
                buffer.add(chunk);
                while let Some(event) = buffer.take() {
                    events.extend(event_of(&event));
                }
            }
            assert_eq!(events, [StreamEvent::Change(7), StreamEvent::Read], "{length}");
        }
    }

    #[test]
    fn a_part_without_a_change_and_a_failure_are_no_events() {
        assert_eq!(event_of("event: part\ndata: {}\n\n"), None);
        assert_eq!(event_of("event: failed\ndata: {\"text\":\"bench-change-000001\"}\n\n"), None);
        assert_eq!(event_of("event: part\ndata: bench-change-12\n\n"), None);
    }
}
