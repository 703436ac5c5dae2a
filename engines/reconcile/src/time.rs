//! Times in the form that statuses have: RFC 3339 in UTC, in whole seconds.
//!
//! Here: [`Time`] and its JSON form.
//! Elsewhere: durations (`duration.rs`), reading a clock (the program).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// A point in time. Functions of this crate take the present time as an argument, because the crate reads no clock.
pub type Time = jiff::Timestamp;

/// Drops fractions of a second, because `metav1.Time` has none. Otherwise a time would change on its way through the API
/// server.
pub(crate) fn whole_seconds(time: Time) -> Time {
    Time::from_second(time.as_second()).unwrap_or(time)
}

/// Writes a time in whole seconds as text, for `#[serde(with = "time")]`.
pub(crate) fn serialize<S: Serializer>(time: &Time, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&whole_seconds(*time))
}

/// For `#[serde(with = "time")]`. Accepts any RFC 3339 text.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| D::Error::custom(format_args!("`{text}` is not an RFC 3339 time")))
}
