//! Sends the requests for artifacts that are attached to an image, which the search for its signatures needs.
//!
//! Elsewhere: choosing the requests, and judging the answers (the engine `signatures`).

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use signatures::referrers::{ImageRegistryRequest, ImageRegistryResponse, SignatureSearch};

use super::registry_response::{accepted, read};
use super::{Error, OciDigest, OciRepositoryName, RegistrySession};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl RegistrySession<'_> {
    /// The repository to which the requests are sent.
    pub fn repository(&self) -> &OciRepositoryName {
        &self.remote.repository
    }

    /// Sends the requests of a search until it is complete, all within one timeout.
    ///
    /// # Guarantees
    /// An answer counts as missing only if the registry reports that, or if the answer is larger than a signature may be. An
    /// error for a large answer would allow a user who may push to hide good signatures.
    ///
    /// # Errors
    /// The registry did not respond, or responded with an invalid answer.
    pub async fn gather(&self, mut search: SignatureSearch) -> Result<SignatureSearch, Error> {
        self.within(async {
            loop {
                let open = search.open();
                if open.is_empty() {
                    return Ok(search);
                }
                for request in open {
                    let answer = self.attached(&request).await?;
                    search.answer(request, answer).map_err(|why| self.mismatch(&why.0))?;
                }
            }
        })
        .await
    }

    async fn attached(
        &self,
        request: &ImageRegistryRequest,
    ) -> Result<Option<ImageRegistryResponse>, Error> {
        let found = match request {
            ImageRegistryRequest::Manifest(reference) => {
                let answer = self.manifest_bytes(&format!("manifests/{reference}")).await;
                answer.map(|(media_type, body)| ImageRegistryResponse { media_type, body })
            }
            ImageRegistryRequest::Blob { digest, size } => {
                let path = format!("blobs/{digest}");
                let body = async {
                    let asked = self.ask(Method::GET, &path, "*/*").await?;
                    let answer = accepted(self, Method::GET, &path, asked).await?;
                    read(self, &path, answer, *size).await
                };
                body.await.map(|body| ImageRegistryResponse { media_type: String::new(), body })
            }
            ImageRegistryRequest::Referrers(digest) => return self.referrers(digest).await,
        };
        match found {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::NotFound { .. } | Error::TooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `None`: the registry has no API of referrers. Parity(flux): four kinds of refusal, and an answer that is not an
    /// index, count as that.
    async fn referrers(&self, digest: &str) -> Result<Option<ImageRegistryResponse>, Error> {
        let path = format!("referrers/{digest}");
        let asked = self.ask(Method::GET, &path, INDEX).await?;
        if matches!(asked.status().as_u16(), 400 | 404 | 405 | 406) {
            return Ok(None);
        }
        let answer = accepted(self, Method::GET, &path, asked).await?;
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let is_index = media_type.is_some_and(|it| it.split(';').next() == Some(INDEX));
        if !is_index {
            return Ok(None);
        }
        // A list that is too large counts as empty. The registry still supports the API.
        let body = match read(self, &path, answer, self.remote.limits.manifest).await {
            Err(Error::TooLarge { .. }) => Vec::new(),
            body => body?,
        };
        Ok(Some(ImageRegistryResponse { media_type: INDEX.to_owned(), body }))
    }

    fn mismatch(&self, digest: &str) -> Error {
        let place = self.remote.repository.to_string();
        match OciDigest::parse(digest) {
            Ok(expected) => Error::Mismatch { what: "signature", place, expected },
            Err(error) => error,
        }
    }
}
