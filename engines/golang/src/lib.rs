//! The small languages of Go libraries that specs contain. Users wrote these texts for Go's libraries, so they mean the
//! same here.
//!
//! Here: versions and version ranges ([`semver`]), the highest version in a range ([`highest_version_selection`]), regular
//! expressions ([`regexp`]), times ([`time`]), globs ([`glob`]), Go's values as templates see them ([`value`]), their
//! text ([`fmt`], [`strconv`]), JSON ([`json`]), URLs ([`url`]), paths ([`path`]), classes of characters ([`unicode`]),
//! and limits for the work on a text ([`work_meter`]). Elsewhere: YAML as Go reads and writes it (`goyaml`), templates
//! (`gotemplate`), durations in specs (`reconcile`), and comparing single strings with Go (`cargo xtask conformance`).

pub mod fmt;
pub mod glob;
pub mod highest_version_selection;
pub mod json;
pub mod path;
pub mod regexp;
pub mod semver;
pub mod strconv;
pub mod time;
pub mod unicode;
pub mod url;
pub mod value;
pub mod work_meter;

pub use value::GoRuntimeValue;
