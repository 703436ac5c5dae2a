//! The functions, a file for each subject.

mod dates;
mod defaults;
mod dicts;
mod durations;
mod floats;
mod integers;
mod kinds;
mod layout;
mod lists;
mod merge;
mod network;
mod parts;
mod paths;
mod regex;
mod sequences;
mod strings;
#[cfg(test)]
mod tests;
mod texts;
mod urls;
mod versions;
mod words;

use crate::table::Entry;

/// All of them.
pub(crate) const ALL: &[&[Entry]] = &[
    dates::ENTRIES,
    defaults::ENTRIES,
    dicts::ENTRIES,
    durations::ENTRIES,
    floats::ENTRIES,
    integers::ENTRIES,
    kinds::ENTRIES,
    layout::ENTRIES,
    lists::ENTRIES,
    merge::ENTRIES,
    network::ENTRIES,
    parts::ENTRIES,
    paths::ENTRIES,
    regex::ENTRIES,
    sequences::ENTRIES,
    strings::ENTRIES,
    texts::ENTRIES,
    urls::ENTRIES,
    versions::ENTRIES,
    words::ENTRIES,
];
