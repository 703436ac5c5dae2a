//! The functions, a file for each subject.

mod conversion;
mod crypto;
mod dates;
mod defaults;
mod dicts;
mod durations;
mod encoding;
mod floats;
mod integers;
mod json;
mod kinds;
mod layout;
mod lists;
mod merge;
mod network;
mod parts;
mod paths;
mod random;
mod regex;
mod sequences;
mod strings;
#[cfg(test)]
mod tests;
mod toml;
mod urls;
mod versions;
mod words;
pub(crate) mod yaml;

pub(crate) use json::from_json_as_sprig as from_json;

use crate::table::SprigFunctionEntry;

/// All of them.
pub(crate) const ALL: &[&[SprigFunctionEntry]] = &[
    crypto::ENTRIES,
    crypto::aes::ENTRIES,
    crypto::passwords::ENTRIES,
    dates::ENTRIES,
    defaults::ENTRIES,
    dicts::ENTRIES,
    durations::ENTRIES,
    encoding::ENTRIES,
    floats::ENTRIES,
    integers::ENTRIES,
    json::ENTRIES,
    kinds::ENTRIES,
    layout::ENTRIES,
    lists::ENTRIES,
    merge::ENTRIES,
    network::ENTRIES,
    parts::ENTRIES,
    paths::ENTRIES,
    random::ENTRIES,
    regex::ENTRIES,
    sequences::ENTRIES,
    strings::ENTRIES,
    conversion::ENTRIES,
    toml::ENTRIES,
    urls::ENTRIES,
    versions::ENTRIES,
    words::ENTRIES,
    yaml::ENTRIES,
];
