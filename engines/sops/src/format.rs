//! The five formats: their names, the text by which Flux detects encrypted data, and how a file name determines the format.

use std::fmt;

/// A format of encrypted files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SopsFormat {
    /// Any data. Its encrypted form is JSON with the whole content as one value.
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
    /// All formats, in the order in which marks are searched.
    const ALL: [Self; 5] = [Self::Json, Self::Binary, Self::Yaml, Self::Dotenv, Self::Ini];

    /// The format of a file by the ending of its name. With an unknown ending it is [`SopsFormat::Binary`].
    ///
    /// A name that ends with `.dockerconfigjson` is JSON. Upper case matters: `X.YAML` is binary.
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

    /// A text that all encrypted data of this format contains, as sops writes it.
    fn mark(self) -> &'static [u8] {
        match self {
            Self::Binary | Self::Json => b"\"mac\": \"ENC[",
            Self::Dotenv => b"sops_mac=ENC[",
            Self::Ini => b"[sops]",
            Self::Yaml => b"mac: ENC[",
        }
    }

    /// Whether data looks like an encrypted file of this format, because it contains the format's mark.
    #[must_use]
    pub fn is_marked(self, data: &[u8]) -> bool {
        memchr::memmem::find(data, self.mark()).is_some()
    }

    /// The formats whose marks the data contains. JSON and binary data have the same mark.
    ///
    /// Flux takes any of these formats, in the random order of a Go map.
    pub(crate) fn detect(data: &[u8]) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|format| format.is_marked(data))
    }
}

impl fmt::Display for SopsFormat {
    /// The name of the format in Flux's error messages.
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
