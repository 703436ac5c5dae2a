//! The five formats: their names, the marks by which Flux finds encrypted data, which file has which.

use std::fmt;

/// A format of encrypted files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SopsFormat {
    /// Anything: in encrypted form it is JSON with the content as one value.
    Binary,
    /// Lines of `KEY=value`.
    Dotenv,
    /// Sections of keys and values.
    Ini,
    /// JSON with an object at its root.
    Json,
    /// YAML, any number of documents.
    Yaml,
}

impl SopsFormat {
    /// In the order in which marks are looked for.
    const ALL: [Self; 5] = [Self::Json, Self::Binary, Self::Yaml, Self::Dotenv, Self::Ini];

    /// The ending of a name determines the format of a file; without a known ending it is [`SopsFormat::Binary`].
    ///
    /// A name that ends with `.dockerconfigjson` is JSON. The spelling counts: `X.YAML` is binary.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        if name.ends_with(".dockerconfigjson") || name.ends_with(".json") {
            Self::Json
        } else if name.ends_with(".yaml") || name.ends_with(".yml") {
            Self::Yaml
        } else if name.ends_with(".env") {
            Self::Dotenv
        } else if name.ends_with(".ini") {
            Self::Ini
        } else {
            Self::Binary
        }
    }

    /// What encrypted data of this format contains, as sops writes it.
    fn mark(self) -> &'static [u8] {
        match self {
            Self::Binary | Self::Json => b"\"mac\": \"ENC[",
            Self::Dotenv => b"sops_mac=ENC[",
            Self::Ini => b"[sops]",
            Self::Yaml => b"mac: ENC[",
        }
    }

    /// Whether data look like an encrypted file of this format: they contain its mark anywhere.
    #[must_use]
    pub fn is_marked(self, data: &[u8]) -> bool {
        memchr::memmem::find(data, self.mark()).is_some()
    }

    /// The formats whose marks data contain: JSON and binary data have the same.
    ///
    /// Flux takes any of them, as Go orders its map.
    pub(crate) fn detect(data: &[u8]) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|format| format.is_marked(data))
    }
}

impl fmt::Display for SopsFormat {
    /// As error messages of Flux call it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "binary",
            Self::Dotenv => "dotenv",
            Self::Ini => "INI",
            Self::Json => "JSON",
            Self::Yaml => "YAML",
        })
    }
}
