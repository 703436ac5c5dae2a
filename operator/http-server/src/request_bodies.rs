//! Reads request bodies part by part. A short body needs no permit, so a slow sender does not delay others.
//!
//! Elsewhere: connections (`connections`), and the number of longer bodies in memory (the callers).

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use futures::StreamExt as _;

/// How many bytes of a body are read without a permit. Most bodies are shorter.
pub const SHORT_BODY_BYTES: usize = 64 << 10;

/// A body that is being read.
pub struct BodyReader {
    stream: BodyDataStream,
    read: Vec<u8>,
    most: usize,
}

impl BodyReader {
    /// A reader of a body that may have `most` bytes.
    pub fn new(body: Body, most: usize) -> Self {
        Self { stream: body.into_data_stream(), read: Vec::new(), most }
    }

    /// Reads until the end, or until more than `bytes` bytes were read. Returns whether it reached the end.
    ///
    /// # Errors
    /// The status code of the response: the body is too long, or the connection was interrupted.
    pub async fn up_to(&mut self, bytes: usize) -> Result<bool, StatusCode> {
        while self.read.len() <= bytes {
            let Some(part) = self.stream.next().await else { return Ok(true) };
            let part = part.map_err(|_| StatusCode::BAD_REQUEST)?;
            if self.read.len() + part.len() > self.most {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            self.read.extend_from_slice(&part);
        }
        Ok(false)
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// As those of [`Self::up_to`].
    pub async fn rest(&mut self) -> Result<(), StatusCode> {
        self.up_to(self.most).await.map(drop)
    }

    /// The bytes that were read so far.
    pub fn into_bytes(self) -> Vec<u8> {
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_is_read_up_to_a_length_and_then_to_its_end() {
        let parts = ["abc", "def", "ghi"].map(|part| Ok::<_, std::io::Error>(part.to_owned()));
        let body = Body::from_stream(futures::stream::iter(parts));
        let mut reader = BodyReader::new(body, 9);
        assert_eq!(reader.up_to(4).await, Ok(false));
        assert_eq!(reader.read, b"abcdef");
        assert_eq!(reader.rest().await, Ok(()));
        assert_eq!(reader.into_bytes(), b"abcdefghi");
        let mut reader = BodyReader::new(Body::from("abc"), 2);
        assert_eq!(reader.up_to(1).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
    }
}
