//! Interprets the errors of an S3 server.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use http_client::{HostBusyError, root_cause};

use super::sdk_transport::S3ConnectionError;
use crate::bucket::Error;
use crate::bucket::request_context::{BucketRequestContext, printable};

/// The advice if the keys are not accepted.
const CHECK: &str = "the access key, the secret key and spec.region";

/// The status of the response that was an error. `None` if there was no response.
pub(super) fn status<E>(error: &SdkError<E, HttpResponse>) -> Option<u16> {
    error.raw_response().map(|answer| answer.status().as_u16())
}

/// Whether the response to a GET is a 404 without an S3 error code, such as that of a proxy without a route. Such a 404 does
/// not prove that the object is missing. The library gives a 404 without a body the code `NotFound`.
pub(super) fn is_foreign_not_found<E>(error: &SdkError<E, HttpResponse>) -> bool
where
    E: ProvideErrorMetadata,
{
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or_default();
    status(error) == Some(404) && ["", "NotFound"].contains(&code)
}

/// The region of the bucket, according to the server. `None` if the server does not name it.
pub(super) fn region<E>(error: &SdkError<E, HttpResponse>) -> Option<String> {
    let region = error.raw_response()?.headers().get("x-amz-bucket-region")?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (region.len() < 64 && !region.is_empty() && region.chars().all(is_name))
        .then(|| region.to_owned())
}

/// The error of a request, for people.
pub(super) fn failure<E>(
    asked: &BucketRequestContext<'_>,
    error: &SdkError<E, HttpResponse>,
) -> Error
where
    E: StdError + ProvideErrorMetadata + 'static,
{
    // The credentials come from another server than the bucket's.
    if let Some(refused) = find::<CredentialsError>(error) {
        return asked.no_credentials(refused);
    }
    if let Some(unanswered) = find::<S3ConnectionError>(error) {
        let why = unanswered.why.clone();
        return match unanswered.is_distrust {
            true => Error::Distrusted { endpoint: asked.endpoint(), why },
            false => asked.unreachable(why),
        };
    }
    if let Some(busy) = find::<HostBusyError>(error) {
        return Error::Busy(busy.clone());
    }
    let Some(status) = status(error) else {
        return asked.unreachable(printable(&root_cause(error)));
    };
    let service = error.as_service_error().filter(|_| !(200..300).contains(&status));
    let Some(metadata) = service.map(ProvideErrorMetadata::meta) else {
        return asked.unreadable(printable(&root_cause(error)));
    };
    let code = printable(metadata.code().unwrap_or_default());
    match (code.as_str(), status) {
        ("NoSuchBucket", _) => asked.no_bucket(),
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken", _) => {
            asked.refused(code, CHECK)
        }
        ("RequestTimeTooSkewed" | "RequestExpired", _) => {
            Error::Skewed { endpoint: asked.endpoint(), code }
        }
        ("AccessDenied", _) | (_, 401 | 403) => {
            asked.denied(if code.is_empty() { status.to_string() } else { code })
        }
        // The answer to HEAD has no text from which to see which of both is missing.
        ("NoSuchKey" | "NotFound" | "", 404) => asked.missing(),
        _ => asked.answer(status, code, metadata.message().unwrap_or_default()),
    }
}

/// The error of type `T` in a chain of errors. `None` if the chain has none.
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
