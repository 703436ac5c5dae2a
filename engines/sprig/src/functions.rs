//! The functions, a file for each subject.

mod strings;

use crate::table::Entry;

/// All of them.
pub(crate) const ALL: &[&[Entry]] = &[strings::ENTRIES];
