//! What the errors of a server that speaks S3 mean.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use super::transport::Unanswered;
use crate::bucket::{Error, Remote};
use crate::http::{Busy, root_cause};

/// The longest text of a server that is told on.
const LONGEST_TEXT: usize = 300;

/// What was asked.
pub(super) struct Asked<'a> {
    pub(super) remote: &'a Remote,
    /// The object; none for the bucket itself.
    pub(super) key: Option<&'a str>,
    /// As the error tells it.
    pub(super) action: String,
}

/// The status of an answer that was an error.
pub(super) fn status<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error.raw_response().map(|answer| answer.status().as_u16())
}

/// The region that the server says the bucket is in.
pub(super) fn region<E>(error: &SdkError<E, HttpResponse>) -> Option<String> {
    let region = error.raw_response()?.headers().get("x-amz-bucket-region")?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (region.len() < 64 && !region.is_empty() && region.chars().all(is_name))
        .then(|| region.to_owned())
}

/// What went wrong, for a person.
pub(super) fn failure<E>(asked: &Asked<'_>, error: &SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + 'static,
{
    let remote = asked.remote;
    let endpoint = remote.server.endpoint.to_string();
    let unreachable = |why: String| {
        let why = match &remote.server.proxy {
            Some(proxy) => format!("{why}, through the proxy {proxy}"),
            None => why,
        };
        Error::Unreachable { endpoint: endpoint.clone(), why }
    };
    if let Some(unanswered) = find::<Unanswered>(error) {
        let why = unanswered.to_string();
        return match unanswered.is_distrust {
            true => Error::Distrusted { endpoint, why },
            false => unreachable(why),
        };
    }
    if let Some(busy) = find::<Busy>(error) {
        return Error::Busy(busy.clone());
    }
    if let Some(refused) = find::<CredentialsError>(error) {
        return Error::NoCredentials { endpoint, why: printable(&root_cause(refused)) };
    }
    let Some(status) = status(error) else {
        return unreachable(printable(&root_cause(error)));
    };
    let service = error.as_service_error().filter(|_| !(200..300).contains(&status));
    let Some(metadata) = service.map(ProvideErrorMetadata::meta) else {
        let (action, why) = (asked.action.clone(), printable(&root_cause(error)));
        return Error::Unreadable { action, endpoint, why };
    };
    let code = printable(metadata.code().unwrap_or_default());
    let bucket = remote.bucket.clone();
    let what = || match asked.key {
        Some(key) => format!("object '{key}' in bucket '{bucket}'"),
        None => format!("bucket '{bucket}'"),
    };
    match (code.as_str(), status) {
        ("NoSuchBucket", _) => Error::NoBucket { bucket, endpoint },
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken", _) => {
            Error::BadCredentials { endpoint, code }
        }
        ("RequestTimeTooSkewed" | "RequestExpired", _) => Error::Skewed { endpoint, code },
        ("AccessDenied", _) | (_, 401 | 403) => {
            let code = if code.is_empty() { status.to_string() } else { code };
            Error::Denied { what: what(), endpoint, code }
        }
        // The answer to HEAD has no text that says which of both is missing.
        ("NoSuchKey" | "NotFound" | "", 404) => match asked.key {
            Some(key) => Error::NoObject { bucket, key: key.to_owned() },
            None => Error::NoBucket { bucket, endpoint },
        },
        _ => {
            let text = printable(metadata.message().unwrap_or_default());
            Error::Answer { action: asked.action.clone(), endpoint, status, code, text }
        }
    }
}

/// An error of one type somewhere in a chain.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        current = error.source();
    }
    None
}

/// Text of somebody else, as it can be shown.
fn printable(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect();
    text.trim().to_owned()
}
