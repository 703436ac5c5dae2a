//! The small languages that Go programs brought into specs: users wrote them for Go's libraries, so they
//! mean here what they mean there.
//!
//! Here: versions and version ranges ([`semver`]), the highest of many in a range ([`version_choice`]), regular
//! expressions ([`regexp`]), times ([`time`]), globs ([`glob`]), Go's values as templates see them ([`value`]), their
//! text ([`fmt`], [`strconv`]), JSON ([`json`]), URLs ([`url`]), paths ([`path`]), classes of characters ([`unicode`]),
//! and what work on a text may use up ([`work_meter`]).
//! Elsewhere: YAML as Go reads and writes it (`goyaml`), templates (`gotemplate`), durations (`reconcile`), what Go
//! answers to single strings (`cargo xtask conformance`).

pub mod fmt;
pub mod glob;
pub mod json;
pub mod path;
pub mod regexp;
pub mod semver;
pub mod strconv;
pub mod time;
pub mod unicode;
pub mod url;
pub mod value;
pub mod version_choice;
pub mod work_meter;

pub use value::GoRuntimeValue;
