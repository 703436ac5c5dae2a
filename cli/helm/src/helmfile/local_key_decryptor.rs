//! Decrypts with the age keys of the current user. It finds them in the same places as sops.
//!
//! Elsewhere: the encrypted parts of a helmfile (engine `helmfile`), decrypting (`sops`).

use std::path::PathBuf;
use std::sync::OnceLock;

use golang::work_meter::StopSignal;
use helmfile::SopsFileDecryptor;
use sops::{
    DataKeyServices, DecryptionKeys, Error, KeyServiceMasterKey, MacPolicy, SopsDecryptor,
    SopsFormat,
};
use zeroize::Zeroizing;

/// The path of the key file below the user's configuration directory.
const FILE: &str = "sops/age/keys.txt";

/// The advice if no key fits.
const ADVICE: &str = "set SOPS_AGE_KEY or SOPS_AGE_KEY_FILE to an age key that decrypts it";

/// Reads the environment variable with this name. `None` if it is not set.
type EnvironmentLookup = fn(&str) -> Option<String>;

/// Decrypts with the keys of the environment. The keys are read when the first file is decrypted.
pub(super) struct LocalKeyDecryptor {
    variable: EnvironmentLookup,
    keys: OnceLock<Result<DecryptionKeys, String>>,
    stop: StopSignal,
}

impl LocalKeyDecryptor {
    /// Makes a decryptor that uses the environment of this process.
    pub(super) fn new(stop: &StopSignal) -> Self {
        Self::of(|name| std::env::var(name).ok().filter(|it| !it.is_empty()), stop)
    }

    fn of(variable: EnvironmentLookup, stop: &StopSignal) -> Self {
        Self { variable, keys: OnceLock::new(), stop: stop.clone() }
    }

    /// Reads all keys that sops would use: those of both environment variables, and those of the key file if it exists.
    fn read(&self) -> Result<DecryptionKeys, String> {
        let mut found: Vec<(String, Zeroizing<Vec<u8>>)> = Vec::new();
        if let Some(text) = (self.variable)("SOPS_AGE_KEY") {
            found.push(("SOPS_AGE_KEY".to_owned(), Zeroizing::new(text.into_bytes())));
        }
        let named = (self.variable)("SOPS_AGE_KEY_FILE").map(PathBuf::from);
        let usual = self.usual().filter(|path| path.exists());
        for path in named.into_iter().chain(usual) {
            let shown = path.display().to_string();
            let text =
                std::fs::read(&path).map_err(|error| format!("cannot read {shown}: {error}"))?;
            found.push((shown, Zeroizing::new(text)));
        }
        if found.is_empty() {
            return Err(format!("it is encrypted with SOPS, and there is no key: {ADVICE}"));
        }
        // The name of an entry tells the kind of its key.
        let entries: Vec<(String, &[u8])> =
            found.iter().map(|(name, text)| (format!("{name}.agekey"), text.as_slice())).collect();
        let entries = entries.iter().map(|(name, text)| (name.as_str(), *text));
        DecryptionKeys::import("", entries).map_err(|error| match error {
            Error::Import { name, problem, .. } => {
                format!("{}: {problem}", name.trim_end_matches(".agekey"))
            }
            other => other.to_string(),
        })
    }

    /// The path at which sops looks for its key file by default. `None` if no environment variable names the user's folder.
    fn usual(&self) -> Option<PathBuf> {
        let home = || (self.variable)("HOME").map(PathBuf::from);
        let of_system =
            if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
        let configurations = (self.variable)("XDG_CONFIG_HOME").map(PathBuf::from);
        let configurations = configurations.or_else(|| home().map(|it| it.join(of_system)));
        configurations.map(|it| it.join(FILE))
    }
}

impl SopsFileDecryptor for LocalKeyDecryptor {
    fn decrypt(&self, data: &[u8], format: SopsFormat) -> Result<Zeroizing<Vec<u8>>, String> {
        let keys = self.keys.get_or_init(|| self.read()).as_ref().map_err(Clone::clone)?;
        // sops verifies the MAC, too.
        let decryptor = SopsDecryptor::new(keys).with_mac(MacPolicy::Require);
        let decryptor = decryptor.with_services(&DisabledKeyServices).with_stop(&self.stop);
        decryptor.decrypt(data, format, format).map_err(|error| match error {
            Error::DataKey(_) => format!("{error}\n\n{ADVICE}"),
            other => other.to_string(),
        })
    }
}

/// Refuses key services. Only the operator sends requests to such services.
struct DisabledKeyServices;

impl DataKeyServices for DisabledKeyServices {
    fn decrypt(&self, key: &KeyServiceMasterKey) -> Result<Zeroizing<Vec<u8>>, String> {
        Err(format!("this command does not ask {}, it knows age keys only", key.service()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(variable: EnvironmentLookup) -> String {
        let keys = LocalKeyDecryptor::of(variable, &StopSignal::default());
        keys.decrypt(b"{}", SopsFormat::Json).unwrap_err()
    }

    #[test]
    fn keys_are_read_from_the_places_of_sops() {
        let usual = |variable: EnvironmentLookup| {
            LocalKeyDecryptor::of(variable, &StopSignal::default()).usual()
        };
        let file = |top: &str| Some(PathBuf::from(format!("{top}/sops/age/keys.txt")));
        assert_eq!(usual(|name| (name == "XDG_CONFIG_HOME").then(|| "/x".to_owned())), file("/x"));
        if !cfg!(target_os = "macos") {
            let of_home = usual(|name| (name == "HOME").then(|| "/h".to_owned()));
            assert_eq!(of_home, file("/h/.config"));
        }
        assert_eq!(usual(|_| None), None);
    }

    #[test]
    fn a_key_that_cannot_be_read_is_named_and_not_quoted() {
        let missing =
            why(|name| (name == "SOPS_AGE_KEY_FILE").then(|| "/nowhere/key.txt".to_owned()));
        assert!(missing.starts_with("cannot read /nowhere/key.txt: "), "{missing}");
        let wrong = why(|name| (name == "SOPS_AGE_KEY").then(|| "AGE-SECRET-KEY-1XXX".to_owned()));
        assert!(wrong.starts_with("SOPS_AGE_KEY: ") && !wrong.contains("1XXX"), "{wrong}");
        let none = why(|_| None);
        assert!(none.contains("there is no key: set SOPS_AGE_KEY"), "{none}");
    }
}
