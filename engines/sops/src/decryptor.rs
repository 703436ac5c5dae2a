//! Decrypts a file: reads it in one format and writes it in the same or another format.

use golang::time::RFC3339;
use golang::work_meter::StopSignal;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::format::SopsFormat;
use crate::key_group::data_key;
use crate::key_service::{DataKeyServices, NoDataKeyServices};
use crate::keys::DecryptionKeys;
use crate::limits::{DecryptionDeadline, FileLimitExceeded, SopsLimits};
use crate::metadata::SopsMetadata;
use crate::tree_decryption::MacCoverage;
use crate::value::{MapItem, SopsValue};
use crate::{encrypted_value, file_codec, tree_decryption};

/// Whether the MAC of a file must match its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MacPolicy {
    /// The MAC is not checked. Flux does the same, because a build changes objects before they are decrypted.
    #[default]
    Ignore,
    /// A file with a wrong or missing MAC is rejected. This includes entries of a Secret that are files.
    ///
    /// Objects that are encrypted as a whole are not checked, because a build changed them. A caller that decrypts them must
    /// check their source files with [`SopsDecryptor::check`].
    Require,
}

/// Decrypts files and objects of SOPS with some keys.
#[derive(Clone, Copy)]
pub struct SopsDecryptor<'k> {
    keys: &'k DecryptionKeys,
    services: &'k dyn DataKeyServices,
    mac: MacPolicy,
    pub(crate) limits: SopsLimits,
    until: DecryptionDeadline<'k>,
}

impl std::fmt::Debug for SopsDecryptor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SopsDecryptor")
            .field("keys", self.keys)
            .field("mac", &self.mac)
            .finish_non_exhaustive()
    }
}

impl<'k> SopsDecryptor<'k> {
    /// Decrypts with these keys, without services, and ignores MACs.
    #[must_use]
    pub fn new(keys: &'k DecryptionKeys) -> Self {
        Self {
            keys,
            services: &NoDataKeyServices,
            mac: MacPolicy::Ignore,
            limits: SopsLimits::default(),
            until: DecryptionDeadline::default(),
        }
    }

    /// Uses these services for data keys that they encrypted.
    #[must_use]
    pub fn with_services(self, services: &'k dyn DataKeyServices) -> Self {
        Self { services, ..self }
    }

    /// Sets the policy for MACs.
    #[must_use]
    pub fn with_mac(self, mac: MacPolicy) -> Self {
        Self { mac, ..self }
    }

    /// Sets the limits for the size of files, for their nesting and for the number of keys.
    #[must_use]
    pub fn with_limits(self, limits: SopsLimits) -> Self {
        Self { limits, ..self }
    }

    /// Stops decryption when the closure returns true. It is called for each file, master key and value.
    #[must_use]
    pub fn with_stop(self, stop: &'k StopSignal) -> Self {
        Self { until: DecryptionDeadline(Some(stop)), ..self }
    }

    /// # Errors
    /// The caller stopped the decryption.
    pub(crate) fn go_on(&self) -> Result<(), Error> {
        if self.until.is_over() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Decrypts a file. It is read in one format and written in another.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn decrypt(
        &self,
        data: &[u8],
        from: SopsFormat,
        to: SopsFormat,
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let (documents, _) = self.open(data, from)?;
        file_codec::write(&documents, to)
            .map_err(|problem| Error::Emit(from, to, problem.to_string()))
    }

    /// Checks the MAC of a file that looks encrypted in some format. Other files pass without a check. Returns the MAC and the
    /// encrypted strings that it covers. A file that passed unchecked has none, and comments are not covered by a MAC.
    ///
    /// # Errors
    /// The file cannot be decrypted, or its MAC does not match its content; see [`Error`].
    pub fn check(&self, data: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let strict = self.with_mac(MacPolicy::Require);
        let mut outcome = Ok(Vec::new());
        for format in SopsFormat::detect(data) {
            match strict.open(data, format) {
                Ok((_, covered)) => return Ok(covered),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Decrypts the documents of a file. If the MAC must be valid, also returns the encrypted strings that it covers.
    fn open(&self, data: &[u8], from: SopsFormat) -> Result<DecryptedDocuments, Error> {
        self.go_on()?;
        if data.len() > self.limits.bytes {
            let problem = FileLimitExceeded::Bytes(self.limits.bytes);
            return Err(Error::Load(from, problem.to_string()));
        }
        let loaded = file_codec::read(data, from, &self.limits);
        let (mut documents, metadata) =
            loaded.map_err(|problem| Error::Load(from, problem.to_string()))?;
        let key = data_key(&metadata, self.keys, self.services, self.until);
        self.go_on()?;
        let key = key.map_err(|problem| Error::DataKey(problem.to_string()))?;
        let mut covered = (self.mac == MacPolicy::Require).then(|| MacCoverage::new(&metadata));
        let walked =
            tree_decryption::decrypt(&mut documents, &metadata, &key, covered.as_mut(), self.until);
        self.go_on()?;
        walked.map_err(|problem| Error::Decrypt(problem.to_string()))?;
        let Some(covered) = covered else { return Ok((documents, Vec::new())) };
        let (mac, mut strings) = covered.end();
        check_mac(&metadata, &key, &mac)?;
        strings.push(metadata.mac.into_bytes());
        Ok((documents, strings))
    }
}

/// Plain documents, and the encrypted strings that a right MAC covers.
type DecryptedDocuments = (Vec<Vec<MapItem>>, Vec<Vec<u8>>);

fn check_mac(metadata: &SopsMetadata, key: &[u8], mac: &str) -> Result<(), Error> {
    let modified = metadata.last_modified.format(RFC3339);
    let recorded = encrypted_value::decrypt(metadata.mac.as_bytes(), key, &modified)
        .map_err(|problem| Error::Integrity(format!("the MAC cannot be decrypted: {problem}")))?;
    match recorded {
        SopsValue::Text(recorded) if recorded.as_slice() == mac.as_bytes() => Ok(()),
        SopsValue::Text(recorded) if recorded.is_empty() => {
            Err(Error::Integrity("the file has no MAC; encrypt it again with sops".to_owned()))
        }
        // Both MACs are digests of plain values, from which short values could be guessed, so they are not shown.
        _ => Err(Error::Integrity(
            "the MAC is not that of the content: the file was changed without sops; edit it with sops".to_owned(),
        )),
    }
}
