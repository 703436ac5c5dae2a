//! Estimates the memory that the values of a text will take once the text is parsed.
//!
//! A map takes hundreds of bytes but only four in the text, so its memory is estimated before parsing.
//! Elsewhere: parsing (`goyaml`, `golang::json`, `functions/toml.rs`), other counted memory (`arguments.rs`).

use crate::arguments::{MAP_ENTRY_OVERHEAD_BYTES, MAP_OVERHEAD_BYTES};

/// An upper estimate of the memory that the values of a YAML, JSON or TOML text will take, without its aliases.
pub fn weight(text: &[u8]) -> usize {
    let mut items = 1_usize;
    let mut maps = 1_usize;
    let mut above = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let indent = line.iter().take_while(|byte| **byte == b' ').count();
        let mut dashes = 0;
        let mut keys = 0;
        for byte in &line[indent..] {
            match byte {
                b',' | b'[' | b'?' => items += 1,
                b'{' => (items, maps) = (items + 1, maps + 1),
                b'-' => dashes += 1,
                b':' | b'=' => keys += 1,
                _ => {}
            }
        }
        // A map begins where a line is indented deeper than the one above it, and in an item of a list.
        if indent > above {
            maps += 1;
        }
        if keys > 0 {
            maps += dashes;
        }
        items += 1 + dashes + keys;
        above = indent;
    }
    let values = items
        .saturating_mul(MAP_ENTRY_OVERHEAD_BYTES)
        .saturating_add(maps.saturating_mul(MAP_OVERHEAD_BYTES));
    values.saturating_add(text.len())
}

/// [`weight`] for texts whose keys may contain points. Each point stands for a map.
pub(crate) fn weight_with_points(text: &[u8]) -> usize {
    let points = memchr::memchr_iter(b'.', text).count();
    weight(text).saturating_add(points.saturating_mul(MAP_OVERHEAD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_maps_weighs_more_than_what_becomes_numbers() {
        let lists = "[1, 1, 1, 1, 1, 1, 1, 1]".repeat(100);
        let maps = "[{a: 1}, {a: 1}, {a: 1}]".repeat(100);
        assert!(weight(maps.as_bytes()) > 3 * weight(lists.as_bytes()));
        let nested: String = (0..100).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert!(weight(nested.as_bytes()) > 100 * MAP_OVERHEAD_BYTES);
        let flat = "key: value\n".repeat(100);
        assert!(weight(flat.as_bytes()) < 100 * MAP_OVERHEAD_BYTES);
    }
}
