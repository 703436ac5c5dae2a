//! Reads the lines of a watch, with a limit for the length of each line.

use kube::client::Body;

use crate::ClusterError;
use crate::response_limit::piece;

/// The longest line. etcd stores objects of up to 1.5 MiB unless its flags allow more, and their JSON is a little longer.
const LINE_LIMIT: usize = 32 << 20;

/// Reads lines from a body.
pub(super) struct BodyLines {
    body: Body,
    /// The bytes that have arrived but were not returned yet.
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer.
    at: usize,
    limit: usize,
}

impl BodyLines {
    pub(super) fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new(), at: 0, limit: LINE_LIMIT }
    }

    /// The next line without its line end. `None` at the end of the body, where an incomplete line is dropped.
    ///
    /// # Errors
    /// The connection is interrupted, or a line is too long.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, ClusterError> {
        let mut searched = self.at;
        loop {
            let fresh = self.buffer.get(searched..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', fresh) {
                let line = self.buffer.get(self.at..searched + end).unwrap_or_default().to_vec();
                self.at = searched + end + 1;
                if line.iter().all(u8::is_ascii_whitespace) {
                    searched = self.at;
                    continue;
                }
                return Ok(Some(line));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            searched = self.buffer.len();
            if searched > self.limit {
                let text = format!("a watch event is larger than {} bytes", self.limit);
                return Err(ClusterError::NoAnswer(text));
            }
            match piece(&mut self.body).await {
                Some(Ok(data)) => self.buffer.extend_from_slice(&data),
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, limit: usize) -> BodyLines {
        BodyLines { limit, ..BodyLines::new(Body::from(text.as_bytes().to_vec())) }
    }

    #[tokio::test]
    async fn lines_come_whole_and_half_a_line_counts_for_nothing() {
        let mut lines = lines("one\n\r\n\ntwo\r\nthr", 100);
        assert_eq!(lines.next().await.unwrap().unwrap(), b"one");
        assert_eq!(lines.next().await.unwrap().unwrap(), b"two\r");
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_line_without_end_ends_the_watch() {
        let error = lines(&"x".repeat(101), 100).next().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "request to the API server failed: a watch event is larger than 100 bytes"
        );
    }
}
