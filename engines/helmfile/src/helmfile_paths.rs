//! Resolves the paths and patterns of files in a helmfile, relative to the helmfile, and handles missing files.

use crate::error::Result;
use crate::remote_address::RemoteAddress;
use crate::working_directory::{WorkingDirectory, parent};
use golang::path::join;

/// Whether a text is an address of go-getter rather than a path.
pub(crate) fn is_remote(path: &str) -> bool {
    RemoteAddress::parse(path).is_some()
}

/// The scheme of a URL, before its colon. `None` if the text does not begin with a scheme.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some(scheme)
}

/// The refusal of an address.
pub(crate) fn remote_refusal(address: &RemoteAddress) -> crate::Error {
    format!(
        "`{address}` is a remote address, which this command does not fetch: \
         fetch it first and name the local directory or file"
    )
    .into()
}

/// The paths of a helmfile.
pub(crate) struct HelmfilePaths<'p> {
    place: &'p WorkingDirectory,
    base: String,
    file: String,
}

impl<'p> HelmfilePaths<'p> {
    /// Paths relative to a file.
    pub(crate) fn of_file(place: &'p WorkingDirectory, file: &str) -> Self {
        Self { place, base: parent(file), file: file.to_owned() }
    }

    /// Paths relative to a directory.
    pub(crate) fn of(place: &'p WorkingDirectory, base: &str, file: &str) -> Self {
        Self { place, base: base.to_owned(), file: file.to_owned() }
    }

    /// A path as seen from the working directory.
    pub(crate) fn normal(&self, path: &str) -> String {
        let is_below = !self.base.is_empty()
            && self.base != "."
            && path.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'));
        if scheme(path).is_some() || path.starts_with('/') || is_below {
            return path.to_owned();
        }
        join(&self.base, path)
    }

    /// The files that a pattern matches.
    pub(crate) fn expand(&self, pattern: &str) -> Result<Vec<String>> {
        self.place
            .glob(&self.normal(pattern))
            .map_err(|error| error.at(&format!("failed processing {pattern}")))
    }

    /// The files that an entry refers to; empty if a file is missing and may be skipped.
    pub(crate) fn resolve(
        &self,
        handler: Option<&str>,
        what: &str,
        path: &str,
    ) -> Result<Vec<String>> {
        let files = match self.place.fetched(&self.normal(path))? {
            Some(fetched) => self.place.glob(&fetched)?,
            None => self.expand(path)?,
        };
        if !files.is_empty() {
            return Ok(files);
        }
        match handler.unwrap_or("Error") {
            "Error" => {
                Err(format!("{what} file matching \"{path}\" does not exist in \"{}\"", self.base)
                    .into())
            }
            "Warn" | "Info" | "Debug" => Ok(Vec::new()),
            other => Err(format!(
                "invalid missing file handler \"{other}\" while processing \"{path}\" in \"{}\": \
                 it must be one of [Error Warn Info Debug]",
                self.file
            )
            .into()),
        }
    }
}
