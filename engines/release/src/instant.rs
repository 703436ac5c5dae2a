//! Times in the JSON of statuses and journals.
//!
//! Elsewhere: times in records, which keep Go's form (`crate::record Timestamp`).

use reconcile::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(time: &Time, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(time)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    parse(&String::deserialize(from)?)
}

fn parse<E: serde::de::Error>(text: &str) -> Result<Time, E> {
    text.parse().map_err(|_| E::custom(format_args!("`{text}` is not an RFC 3339 time")))
}

/// A time that may be absent: `null` then, and whole seconds as `metav1.Time` has them.
pub(crate) mod optional {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, Time, parse};

    pub(crate) fn serialize<S: Serializer>(time: &Option<Time>, out: S) -> Result<S::Ok, S::Error> {
        let second = time.and_then(|time| Time::from_second(time.as_second()).ok());
        second.map(|time| time.to_string()).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Time>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| parse(&text)).transpose()
    }
}

/// A time that may be absent, as exact as it is.
pub(crate) mod exact {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, Time, parse};

    pub(crate) fn serialize<S: Serializer>(time: &Option<Time>, out: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.to_string()).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Time>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| parse(&text)).transpose()
    }
}
