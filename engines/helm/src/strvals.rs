//! The language of `--set` and its siblings: `name=value,list[0].key={a,b}`.
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
//! Here: what is offered, limits, errors. Elsewhere: the parser (`strvals/parser.rs`), what a text means as a value
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

/// How deep names may lead, dots and indices together. Differs(helm): below a list it has no limit.
pub const MAX_DEPTH: usize = 256;

/// How many items the lists may grow by in one call. Differs(helm): it has no limit.
pub const MAX_NEW_ITEMS: usize = 1 << 20;

/// How many items may be walked over in one call. Differs(helm): it has no limit.
const MAX_STEPS: usize = 1 << 24;

/// Finds what a file holds by the text that names it; an error is the whole text that a person sees.
pub type ValueFileReader<'f> = dyn FnMut(&str) -> Result<GoString, String> + 'f;

/// How the text behind `=` becomes a value.
#[non_exhaustive]
pub enum SetValueMode<'f> {
    /// `--set`: numbers, `true`, `false`, `null` and `{lists}` are what they look like.
    Typed,
    /// `--set-string`: always strings.
    Strings,
    /// `--set-json`: JSON.
    Json,
    /// `--set-literal`: everything behind the `=` is one string, and `\` is not an escape.
    Literal,
    /// `--set-file`: what the named file holds, as a string.
    File(&'f mut ValueFileReader<'f>),
}

/// Why values could not be set. Most messages are Helm's; they show names, but neither values nor file content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name without `=`.
    #[error("key {0} has no value")]
    NoValue(String),
    /// A name that a comma ends.
    #[error("key {0} has no value (cannot end with ,)")]
    NoValueBeforeComma(String),
    /// A table in which nothing would be set.
    #[error("key map {0} has no value")]
    EmptyTable(String),
    /// More dots than [`MAX_NESTED_NAME_LEVEL`].
    #[error(
        "value name nested level is greater than maximum supported nested level of {MAX_NESTED_NAME_LEVEL}"
    )]
    TooManyDots,
    /// What stands in brackets is not a number.
    #[error("error parsing index: strconv.Atoi: parsing {text}: {problem}")]
    BadIndex {
        /// The text in the brackets, quoted.
        text: String,
        /// Go's message about it.
        problem: &'static str,
    },
    /// An index below zero.
    #[error("negative {0} index not allowed")]
    NegativeIndex(i64),
    /// An index above [`MAX_INDEX`].
    #[error("index of {0} is greater than maximum supported index of {MAX_INDEX}")]
    IndexTooLarge(i64),
    /// Something between `]` and what may follow it.
    #[error("unexpected data at end of array index: {0}")]
    AfterIndex(String),
    /// `{` without `}`.
    #[error("list must terminate with '}}'")]
    OpenList,
    /// The name leads through something that is not a table, or an index into something that is not a list.
    #[error("unable to parse key: interface conversion: interface {{}} is {found}, not {wanted}")]
    NotContainer {
        /// The Go type of the existing value.
        found: String,
        /// The Go type that is needed.
        wanted: &'static str,
    },
    /// What follows is not JSON.
    #[error(transparent)]
    Json(#[from] golang::json::Error),
    /// A file could not be read.
    #[error("{0}")]
    File(String),
    /// Deeper than [`MAX_DEPTH`].
    #[error(
        "name leads deeper than {MAX_DEPTH} tables and lists; set the outer value at once with JSON"
    )]
    TooDeep,
    /// Lists grew by more than [`MAX_NEW_ITEMS`], or were walked over too often.
    #[error(
        "lists became too large to be set item by item; set them at once with JSON or a values file"
    )]
    TooLarge,
}

/// A list in which items were set, and what took its place.
///
/// In Go, both are one slice: Helm sets the items in place, and other values that hold the slice change with it.
#[derive(Debug)]
pub(crate) struct ListReplacement {
    /// The list as it was.
    pub(crate) before: GoSlice,
    /// The list with the items.
    pub(crate) after: GoSlice,
}

/// Sets values in a table as one `--set…` of Helm does; existing values are kept where nothing else is set.
///
/// What is not UTF-8 becomes U+FFFD, except for the content of files.
///
/// # Errors
/// Values that were set before the error stay set, as in Helm.
///
/// # Assumes
/// Tables in `values` have values of any type, as those from JSON and YAML do.
pub fn set(values: &GoMap, text: impl AsRef<[u8]>, mode: SetValueMode<'_>) -> Result<(), Error> {
    set_in_lists(values, text, mode).map(drop)
}

/// [`set`], with the lists that Go would have changed rather than replaced.
pub(crate) fn set_in_lists(
    values: &GoMap,
    text: impl AsRef<[u8]>,
    mode: SetValueMode<'_>,
) -> Result<Vec<ListReplacement>, Error> {
    SetValueParser::new(text.as_ref(), mode).run(values)
}
