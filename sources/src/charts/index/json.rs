//! Parses a JSON index, version by version.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{ChartIndex, Error, RawChartVersion};

/// Parses an index. Returns it with its `apiVersion`.
pub(super) fn read(text: &[u8]) -> Result<(ChartIndex, Option<String>), Error> {
    let mut reading = ChartIndexReader::default();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = ChartIndexDocument(&mut reading)
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    match (reading.refused, read) {
        (Some(refused), _) => Err(refused),
        (None, read) => read.map(|()| (reading.index, reading.api_version)).map_err(Error::from),
    }
}

#[derive(Default)]
struct ChartIndexReader {
    index: ChartIndex,
    api_version: Option<String>,
    /// The reason why the index does not accept more versions. Errors of serde only contain strings.
    refused: Option<Error>,
}

impl ChartIndexReader {
    fn keep<E: serde::de::Error>(&mut self, done: Result<(), Error>) -> Result<(), E> {
        done.map_err(|error| {
            self.refused = Some(error);
            E::custom("refused")
        })
    }
}

/// Reads the whole document of a repository's index.
struct ChartIndexDocument<'r>(&'r mut ChartIndexReader);

/// The charts of an index, which may be null.
struct IndexCharts<'r>(&'r mut ChartIndexReader);

/// The versions of a chart, which may be null.
struct IndexChartVersions<'r>(&'r mut ChartIndexReader, &'r str);

macro_rules! anything {
    ($($part:ident),+) => {$(
        impl<'de> DeserializeSeed<'de> for $part<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    )+};
}

anything!(ChartIndexDocument, IndexCharts, IndexChartVersions);

impl<'de> Visitor<'de> for ChartIndexDocument<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => self.0.api_version = map.next_value()?,
                "entries" => map.next_value_seed(IndexCharts(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for IndexCharts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of charts")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(chart) = map.next_key::<String>()? {
            let begun = self.0.index.begin(chart.clone());
            self.0.keep::<A::Error>(begun)?;
            map.next_value_seed(IndexChartVersions(self.0, &chart))?;
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for IndexChartVersions<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of versions")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(raw) = list.next_element::<Option<RawChartVersion>>()? {
            let added = self.0.index.add(self.1, raw.unwrap_or_default());
            self.0.keep::<A::Error>(added)?;
        }
        Ok(())
    }
}
