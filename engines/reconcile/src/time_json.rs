//! Times in the JSON of statuses and journals.
//!
//! Elsewhere: times in the records of releases, which keep Go's form (engine `release`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Time;

/// Writes a time as RFC 3339.
///
/// # Errors
/// The error of the serializer `out`.
pub fn serialize<S: Serializer>(time: &Time, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(time)
}

/// Reads an RFC 3339 time.
///
/// # Errors
/// The text is not a time.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    parse(&String::deserialize(from)?)
}

fn parse<E: serde::de::Error>(text: &str) -> Result<Time, E> {
    text.parse().map_err(|_| E::custom(format_args!("`{text}` is not an RFC 3339 time")))
}

/// An optional time: `null` if absent, else in whole seconds like `metav1.Time`.
pub mod optional {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, Time, parse};

    /// Writes a time in whole seconds, or `null`.
    ///
    /// # Errors
    /// The error of the serializer `out`.
    pub fn serialize<S: Serializer>(time: &Option<Time>, out: S) -> Result<S::Ok, S::Error> {
        let second = time.and_then(|time| Time::from_second(time.as_second()).ok());
        second.map(|time| time.to_string()).serialize(out)
    }

    /// Reads an RFC 3339 time, or `null`.
    ///
    /// # Errors
    /// The text is not a time.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| parse(&text)).transpose()
    }
}

/// An optional time with its full precision.
pub mod exact {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, Time, parse};

    /// Writes a time as exactly as it is, or `null`.
    ///
    /// # Errors
    /// The error of the serializer `out`.
    pub fn serialize<S: Serializer>(time: &Option<Time>, out: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.to_string()).serialize(out)
    }

    /// Reads an RFC 3339 time, or `null`.
    ///
    /// # Errors
    /// The text is not a time.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| parse(&text)).transpose()
    }
}
