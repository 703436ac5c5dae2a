//! The language of `--set` and similar flags: `name=value,list[0].key={a,b}`.
//!
//! ```
//! use golang::{GoRuntimeValue, value::{GoMap, GoType}};
//! use helm::strvals::{self, SetValueMode};
//!
//! let values = GoMap::new(GoType::Any, []);
//! strvals::set(&values, "image.tag=1.2,ports={80,443}", SetValueMode::Typed)?;
//! let text = golang::fmt::sprintf("%v", &[GoRuntimeValue::Map(values)]);
//! assert_eq!(text.as_deref(), Ok(b"map[image:map[tag:1.2] ports:[80 443]]".as_slice()));
//! # Ok::<(), strvals::Error>(())
//! ```
//!
//! Here: the public functions, limits and errors. Elsewhere: the parser (`strvals/parser.rs`), and the value of a text
//! (`strvals/typed_set_value.rs`).

mod parser;
#[cfg(test)]
mod tests;
mod typed_set_value;

use golang::value::{GoMap, GoSlice, GoString};

use parser::SetValueParser;

/// The greatest index of a list that can be set, as in Helm.
pub const MAX_INDEX: i64 = 65_536;

/// How many dots a name may have outside of lists, as in Helm.
pub const MAX_NESTED_NAME_LEVEL: usize = 30;

/// How deep a name may lead, counting dots and indices. Differs(helm): below a list it has no limit.
pub const MAX_DEPTH: usize = 256;

/// By how many items lists may grow in one call. Differs(helm): it has no limit.
pub const MAX_NEW_ITEMS: usize = 1 << 20;

/// How many items one call may visit. Differs(helm): it has no limit.
const MAX_STEPS: usize = 1 << 24;

/// Reads the file that a text names. The error is the complete message for the user.
pub type ValueFileReader<'f> = dyn FnMut(&str) -> Result<GoString, String> + 'f;

/// How the text after `=` becomes a value.
#[non_exhaustive]
pub enum SetValueMode<'f> {
    /// `--set`: the text may be a number, `true`, `false`, `null` or a `{list}`. Any other text is a string.
    Typed,
    /// `--set-string`: the text is always a string.
    Strings,
    /// `--set-json`: the text is JSON.
    Json,
    /// `--set-literal`: the whole text after `=` is one string, and `\` is not an escape.
    Literal,
    /// `--set-file`: the value is the content of the named file, as a string.
    File(&'f mut ValueFileReader<'f>),
}

/// Why values could not be set. Most messages are Helm's. They contain names, but neither values nor file content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name has no `=`.
    #[error("key {0} has no value")]
    NoValue(String),
    /// A comma follows a name.
    #[error("key {0} has no value (cannot end with ,)")]
    NoValueBeforeComma(String),
    /// No value of a table would be set.
    #[error("key map {0} has no value")]
    EmptyTable(String),
    /// A name has more dots than [`MAX_NESTED_NAME_LEVEL`].
    #[error(
        "value name nested level is greater than maximum supported nested level of {MAX_NESTED_NAME_LEVEL}"
    )]
    TooManyDots,
    /// The text in brackets is not a number.
    #[error("error parsing index: strconv.Atoi: parsing {text}: {problem}")]
    BadIndex {
        /// The text in the brackets, quoted.
        text: String,
        /// Go's message about the text.
        problem: &'static str,
    },
    /// An index is negative.
    #[error("negative {0} index not allowed")]
    NegativeIndex(i64),
    /// An index is greater than [`MAX_INDEX`].
    #[error("index of {0} is greater than maximum supported index of {MAX_INDEX}")]
    IndexTooLarge(i64),
    /// An unexpected text follows `]`.
    #[error("unexpected data at end of array index: {0}")]
    AfterIndex(String),
    /// A `{` has no `}`.
    #[error("list must terminate with '}}'")]
    OpenList,
    /// A name leads through a value that is not a table, or an index into a value that is not a list.
    #[error("unable to parse key: interface conversion: interface {{}} is {found}, not {wanted}")]
    NotContainer {
        /// The Go type of the existing value.
        found: String,
        /// The Go type that is needed.
        wanted: &'static str,
    },
    /// The value is not JSON.
    #[error(transparent)]
    Json(#[from] golang::json::Error),
    /// A file could not be read.
    #[error("{0}")]
    File(String),
    /// A name leads deeper than [`MAX_DEPTH`].
    #[error(
        "name leads deeper than {MAX_DEPTH} tables and lists; set the outer value at once with JSON"
    )]
    TooDeep,
    /// Lists grew by more than [`MAX_NEW_ITEMS`], or too many items were visited.
    #[error(
        "lists became too large to be set item by item; set them at once with JSON or a values file"
    )]
    TooLarge,
}

/// A list in which items were set, and the list that replaced it.
///
/// In Go, both are the same slice. Helm changes the items in place, so other values that hold the slice change, too.
#[derive(Debug)]
pub(crate) struct ListReplacement {
    /// The list before the change.
    pub(crate) before: GoSlice,
    /// The list with the new items.
    pub(crate) after: GoSlice,
}

/// Sets values in a table, as one `--set…` flag of Helm does. All other values of the table are kept.
///
/// Bytes that are not UTF-8 become U+FFFD, except in the content of files.
///
/// # Errors
/// Values that were set before the error stay set, as in Helm.
///
/// # Assumes
/// Tables in `values` accept values of any type, as those from JSON and YAML do.
pub fn set(values: &GoMap, text: impl AsRef<[u8]>, mode: SetValueMode<'_>) -> Result<(), Error> {
    set_in_lists(values, text, mode).map(drop)
}

/// Like [`set`]. It also returns the lists that Go would have changed in place.
pub(crate) fn set_in_lists(
    values: &GoMap,
    text: impl AsRef<[u8]>,
    mode: SetValueMode<'_>,
) -> Result<Vec<ListReplacement>, Error> {
    SetValueParser::new(text.as_ref(), mode).run(values)
}
