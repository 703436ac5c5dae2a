//! The functions, a file for each subject.

mod crypto;
mod dates;
mod defaults;
mod dicts;
mod durations;
mod encoding;
mod floats;
mod integers;
mod json;
mod lists;
mod merge;
mod network;
mod number_sequences;
mod paths;
mod random;
mod regex;
mod string_parts;
mod strings;
#[cfg(test)]
mod tests;
mod text_layout;
mod toml;
mod urls;
mod value_kinds;
mod value_to_string;
mod versions;
mod word_case;
pub(crate) mod yaml;

pub(crate) use json::from_json_as_sprig as from_json;

use crate::function_table::SprigFunctionEntry;

/// All functions.
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
    value_kinds::ENTRIES,
    text_layout::ENTRIES,
    lists::ENTRIES,
    merge::ENTRIES,
    network::ENTRIES,
    string_parts::ENTRIES,
    paths::ENTRIES,
    random::ENTRIES,
    regex::ENTRIES,
    number_sequences::ENTRIES,
    strings::ENTRIES,
    value_to_string::ENTRIES,
    toml::ENTRIES,
    urls::ENTRIES,
    versions::ENTRIES,
    word_case::ENTRIES,
    yaml::ENTRIES,
];
