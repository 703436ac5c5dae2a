//! Limits the length and the time of answers.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tower::BoxError;

/// The most bytes of one answer. An object has at most 1.5 MiB in etcd. The longest answers are lists of Helm's release
/// records.
pub(super) const ANSWER_LIMIT: usize = 64 << 20;

/// Why an answer was not read completely.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseBodyError {
    /// The answer has too many bytes.
    #[error("the response is larger than {0} bytes")]
    TooLong(usize),
    /// The answer took too long.
    #[error("the response was not complete after {} s", .0.as_secs())]
    TooSlow(Duration),
}

/// A response body that ends with an error if it is too long or takes too long.
pub(super) struct BoundedBody<B> {
    body: B,
    limit: usize,
    read: usize,
    within: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<B> BoundedBody<B> {
    pub(super) fn new(body: B, limit: usize, within: Duration) -> Self {
        Self { body, limit, read: 0, within, deadline: Box::pin(sleep(within)) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for BoundedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(ResponseBodyError::TooSlow(self.within).into())));
        }
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into)?;
        self.read = self.read.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        if self.read > self.limit {
            return Poll::Ready(Some(Err(ResponseBodyError::TooLong(self.limit).into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The next piece of a body. `None` at its end.
pub(super) async fn piece<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
) -> Option<Result<Bytes, B::Error>> {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers are skipped.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that never ends. It sends a kilobyte at a time, or nothing at all.
    struct EndlessBody(bool);

    impl Body for EndlessBody {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            if self.0 {
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1024])))))
            } else {
                Poll::Pending
            }
        }
    }

    async fn end_of(mut body: BoundedBody<EndlessBody>) -> (usize, String) {
        let mut read = 0;
        loop {
            match piece(&mut body).await.unwrap() {
                Ok(data) => read += data.len(),
                Err(error) => return (read, error.to_string()),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_without_end_ends_at_its_length_or_its_time() {
        let hour = Duration::from_secs(3600);
        let (read, why) = end_of(BoundedBody::new(EndlessBody(true), 10_000, hour)).await;
        assert_eq!((read, &*why), (9_216, "the response is larger than 10000 bytes"));
        let (read, why) =
            end_of(BoundedBody::new(EndlessBody(false), 10_000, Duration::ZERO)).await;
        assert_eq!((read, &*why), (0, "the response was not complete after 0 s"));
    }
}
