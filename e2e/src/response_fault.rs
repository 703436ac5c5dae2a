//! Wrong answers of a server, or of a proxy between the server and its client: errors, HTML pages, and incomplete lists.
//!
//! Here: the kinds of faults, and how they change a right answer. Elsewhere: the requests that get wrong answers
//! (`crate::api_server_fault_proxy`, `crate::http_fault_proxy`).

use anyhow::Result;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;

/// The largest answer that is changed, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;

/// The login page of a captive portal. It is well-formed XML, so a parser that ignores unknown elements finds a document
/// without content.
const HTML_PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\
    <body><p>Sign in to continue.</p></body></html>\n";

/// The content type of the Git server's answers to a list of references and to a fetch.
const UPLOAD_PACK: &str = "application/x-git-upload-pack-result";

/// The fields with the entries of a list, in answers of the API server, of API discovery, and of a registry.
const LIST_FIELDS: [&str; 4] = ["items", "groups", "resources", "tags"];

/// The fault of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFault {
    /// An error with this status. The request is not carried out. An answer with 429 contains `Retry-After: 1`.
    Status(u16),
    /// An HTML page with status 200. The request is not carried out.
    HtmlPage,
    /// An answer with status 200 and no body. The request is not carried out.
    EmptyBody,
    /// The body ends after its first half, without a proper end.
    Truncated,
    /// A list without entries that claims to be complete. Other answers stay right.
    EmptyList,
    /// A list without its second half that claims to be complete. Other answers stay right.
    WithoutLastPage,
}

impl ResponseFault {
    /// All faults.
    pub const ALL: [Self; 7] = [
        Self::Status(500),
        Self::Status(429),
        Self::HtmlPage,
        Self::EmptyBody,
        Self::Truncated,
        Self::EmptyList,
        Self::WithoutLastPage,
    ];

    /// The wrong answer that replaces the right one. `None` if the wrong answer is made from the right one.
    pub(crate) fn replacement(self) -> Option<Response> {
        match self {
            Self::Status(status) => {
                let code =
                    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let mut answer = (code, format!("the test bed answers {status}\n")).into_response();
                if code == StatusCode::TOO_MANY_REQUESTS {
                    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                }
                Some(answer)
            }
            Self::HtmlPage => {
                let of_html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
                Some((of_html, HTML_PAGE).into_response())
            }
            Self::EmptyBody => Some(StatusCode::OK.into_response()),
            Self::Truncated | Self::EmptyList | Self::WithoutLastPage => None,
        }
    }

    /// Damages a right answer. Also returns whether the result differs from the right answer.
    ///
    /// # Errors
    /// The right answer is interrupted or too large.
    pub(crate) async fn damage(self, answer: Response) -> Result<(Response, bool)> {
        let (mut parts, body) = answer.into_parts();
        let whole = to_bytes(body, ANSWER_LIMIT).await?;
        if self == Self::Truncated && whole.len() > 1 {
            let half = whole.slice(..whole.len() / 2);
            let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            let body = Body::from_stream(stream::iter([Ok(half), Err(end)]));
            return Ok((Response::from_parts(parts, body), true));
        }
        let is_packed = parts.headers.contains_key(header::CONTENT_ENCODING);
        let is_of_git = parts.headers.get(header::CONTENT_TYPE).is_some_and(|it| it == UPLOAD_PACK);
        let shorter = match self {
            _ if is_packed || !parts.status.is_success() => None,
            // A Git answer that ends at once, in the pkt-line format.
            Self::EmptyList if is_of_git => Some("0000".to_owned()),
            _ => std::str::from_utf8(&whole).ok().and_then(|text| self.shorten(text)),
        };
        let Some(shorter) = shorter else {
            return Ok((Response::from_parts(parts, Body::from(whole)), false));
        };
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok((Response::from_parts(parts, Body::from(shorter)), true))
    }

    /// How many entries of a list remain. `None` if this fault does not change lists.
    fn kept(self, entries: usize) -> Option<usize> {
        match self {
            Self::EmptyList => Some(0),
            Self::WithoutLastPage => Some(entries / 2),
            Self::Status(_) | Self::HtmlPage | Self::EmptyBody | Self::Truncated => None,
        }
    }

    /// Removes entries from a list. Returns `None` if the text is not a list or has no entries.
    fn shorten(self, text: &str) -> Option<String> {
        if text.contains("<ListBucketResult") {
            return self.shorten_bucket(text);
        }
        if let Some((head, _)) = text.split_once("\nentries:") {
            // The entries are the last field in the index of a chart repository.
            return (self == Self::EmptyList).then(|| format!("{head}\nentries: {{}}\n"));
        }
        let mut list: Value = serde_json::from_str(text).ok()?;
        let field = LIST_FIELDS.into_iter().find(|field| list[*field].is_array())?;
        let entries = list.get_mut(field).and_then(Value::as_array_mut)?;
        if entries.is_empty() {
            return None;
        }
        entries.truncate(self.kept(entries.len())?);
        if let Some(metadata) = list.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("continue");
            metadata.remove("remainingItemCount");
        }
        Some(list.to_string())
    }

    /// Removes entries from a listing of an S3 bucket. `None` if the text is not such a listing, or if no entry can be removed.
    fn shorten_bucket(self, text: &str) -> Option<String> {
        const END: &str = "</Contents>";
        let mut parts = text.split("<Contents>");
        let head = parts.next()?;
        let objects: Vec<&str> = parts.collect();
        let (_, tail) = objects.last()?.split_once(END)?;
        let mut shorter = head.to_owned();
        for object in objects.iter().take(self.kept(objects.len())?) {
            let (object, _) = object.split_once(END)?;
            shorter += &format!("<Contents>{object}{END}");
        }
        shorter += tail;
        let shorter =
            shorter.replace("<IsTruncated>true</IsTruncated>", "<IsTruncated>false</IsTruncated>");
        let token = shorter.split_once("<NextContinuationToken>").and_then(|(before, rest)| {
            let (_, after) = rest.split_once("</NextContinuationToken>")?;
            Some(format!("{before}{after}"))
        });
        Some(token.unwrap_or(shorter))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn damaged(fault: ResponseFault, body: &str) -> (String, bool) {
        let answer = (StatusCode::OK, body.to_owned()).into_response();
        let (answer, is_wrong) = fault.damage(answer).await.unwrap();
        let body = to_bytes(answer.into_body(), ANSWER_LIMIT).await.unwrap();
        (String::from_utf8(body.to_vec()).unwrap(), is_wrong)
    }

    #[tokio::test]
    async fn a_list_loses_entries_and_says_that_it_is_complete() {
        let list = json!({"kind": "SecretList", "items": [1, 2, 3],
            "metadata": {"resourceVersion": "7", "continue": "x", "remainingItemCount": 9}});
        let metadata = json!({"resourceVersion": "7"});
        for (fault, items) in
            [(ResponseFault::EmptyList, json!([])), (ResponseFault::WithoutLastPage, json!([1]))]
        {
            let (text, is_wrong) = damaged(fault, &list.to_string()).await;
            let found: Value = serde_json::from_str(&text).unwrap();
            assert!(is_wrong && found["items"] == items, "{text}");
            assert_eq!(found["metadata"], metadata);
        }
        let one = json!({"kind": "Secret", "data": {}}).to_string();
        assert_eq!(damaged(ResponseFault::EmptyList, &one).await, (one, false));
    }

    #[tokio::test]
    async fn a_listing_of_a_bucket_loses_objects_and_says_that_it_is_complete() {
        let of = |objects: &str, more: &str| {
            format!("<ListBucketResult><Name>a</Name>{objects}{more}</ListBucketResult>")
        };
        let objects = "<Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents>";
        let more =
            "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
        let end = "<IsTruncated>false</IsTruncated>";
        let listing = of(objects, more);
        let (text, is_wrong) = damaged(ResponseFault::EmptyList, &listing).await;
        assert_eq!((text, is_wrong), (of("", end), true));
        let (text, _) = damaged(ResponseFault::WithoutLastPage, &listing).await;
        assert_eq!(text, of("<Contents><Key>a</Key></Contents>", end));
        let empty = of("", end);
        assert_eq!(damaged(ResponseFault::EmptyList, &empty).await, (empty, false));
    }

    #[tokio::test]
    async fn a_truncated_body_ends_with_an_error() {
        let answer = (StatusCode::OK, "0123456789").into_response();
        let (answer, is_wrong) = ResponseFault::Truncated.damage(answer).await.unwrap();
        assert!(is_wrong && to_bytes(answer.into_body(), ANSWER_LIMIT).await.is_err());
    }

    #[test]
    fn a_page_for_browsers_comes_as_if_all_were_well() {
        let answer = ResponseFault::HtmlPage.replacement().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let answer = ResponseFault::Status(429).replacement().unwrap();
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    }
}
