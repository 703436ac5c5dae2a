//! Decrypting a file: from the bytes of one format to those of another.

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
use crate::{cipher, store, tree_decryption};

/// Whether the MAC of a file has to be that of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MacPolicy {
    /// It is not compared, as in Flux: objects are changed by a build before they are decrypted.
    #[default]
    Ignore,
    /// A file with another MAC, or without one, is refused; so is an entry of a Secret that is a file.
    ///
    /// Objects that are encrypted as a whole are not compared: a build changed them. A caller that decrypts those
    /// checks the files that they came from by [`SopsDecryptor::check`].
    Require,
}

/// Decrypts with some keys.
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

    /// Asks these services for data keys that they encrypted.
    #[must_use]
    pub fn with_services(self, services: &'k dyn DataKeyServices) -> Self {
        Self { services, ..self }
    }

    /// With this policy for MACs.
    #[must_use]
    pub fn with_mac(self, mac: MacPolicy) -> Self {
        Self { mac, ..self }
    }

    /// With these bounds.
    #[must_use]
    pub fn with_limits(self, limits: SopsLimits) -> Self {
        Self { limits, ..self }
    }

    /// Ends decryption when the closure returns true: it is called for each file, master key and value.
    #[must_use]
    pub fn with_stop(self, stop: &'k StopSignal) -> Self {
        Self { until: DecryptionDeadline(Some(stop)), ..self }
    }

    /// # Errors
    /// The caller ended it.
    pub(crate) fn go_on(&self) -> Result<(), Error> {
        if self.until.is_over() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// The plain content of an encrypted file, read in one format and written in another.
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
        store::write(&documents, to).map_err(|problem| Error::Emit(from, to, problem.to_string()))
    }

    /// Checks the MAC of a file that looks encrypted in some format; others pass. Gives the encrypted strings that the MAC
    /// covers, and itself: none of a file that passed unchecked, and none of comments, which no MAC covers.
    ///
    /// # Errors
    /// The file does not decrypt, or its MAC is not that of its content; see [`Error`].
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

    /// Decrypts the documents of a file; gives the encrypted strings too that its MAC covers where it has to be right.
    fn open(&self, data: &[u8], from: SopsFormat) -> Result<DecryptedDocuments, Error> {
        self.go_on()?;
        if data.len() > self.limits.bytes {
            let problem = FileLimitExceeded::Bytes(self.limits.bytes);
            return Err(Error::Load(from, problem.to_string()));
        }
        let loaded = store::read(data, from, &self.limits);
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
    let recorded = cipher::decrypt(metadata.mac.as_bytes(), key, &modified)
        .map_err(|problem| Error::Integrity(format!("the MAC cannot be decrypted: {problem}")))?;
    match recorded {
        SopsValue::Text(recorded) if recorded.as_slice() == mac.as_bytes() => Ok(()),
        SopsValue::Text(recorded) if recorded.is_empty() => {
            Err(Error::Integrity("the file has no MAC; encrypt it again with sops".to_owned()))
        }
        // Both are digests of plain values, which could be guessed: they are not shown.
        _ => Err(Error::Integrity(
            "the MAC is not that of the content: the file was changed without sops; edit it with sops".to_owned(),
        )),
    }
}
