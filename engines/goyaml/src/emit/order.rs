//! The order in which go-yaml v2 writes the keys of a mapping: letters last, numbers by their value.
//!
//! Here: the comparison, and a sort that gives one fixed answer where the comparison has no answer.
//! Elsewhere: what Go calls a letter or a digit (`classes`).

mod classes;

use classes::{is_digit, is_letter};
use serde_json::{Map, Value};

/// An entry of a mapping on its way to being written.
pub(super) type Entry<'v> = (&'v str, &'v Value);

/// Runs up to this length are sorted by insertion, as Go's `sort.Sort` does.
const RUN: usize = 12;

/// The entries in the order in which they are written.
///
/// # Guarantees
/// The same entries always come out in the same order.
/// For up to twelve entries that is an order Go could have chosen too.
pub(super) fn sorted(map: &Map<String, Value>) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> =
        map.iter().map(|(key, value)| (key.as_str(), value)).collect();
    // Differs(go-yaml v2): its comparison can run in circles (`v1b` < `v2` < `v10` < `v1b`), and Go
    // sorts from a random order, so such keys change places from run to run; here they stay.
    // Rust's own sorts may panic on such a comparison.
    for run in entries.chunks_mut(RUN) {
        for end in 1..run.len() {
            for place in (1..=end).rev() {
                if !is_before(run[place].0, run[place - 1].0) {
                    break;
                }
                run.swap(place, place - 1);
            }
        }
    }
    let mut width = RUN;
    while width < entries.len() {
        let pairs = entries.chunks(2 * width);
        entries = pairs.flat_map(|pair| merged(pair, width.min(pair.len()))).collect();
        width *= 2;
    }
    entries
}

/// Merges the sorted halves of `pair`, whose second one begins at `middle`.
fn merged<'v>(pair: &[Entry<'v>], middle: usize) -> Vec<Entry<'v>> {
    let (mut left, mut right) = pair.split_at(middle);
    let mut out = Vec::with_capacity(pair.len());
    while let ([l, rest_left @ ..], [r, rest_right @ ..]) = (left, right) {
        if is_before(r.0, l.0) {
            out.push(*r);
            right = rest_right;
        } else {
            out.push(*l);
            left = rest_left;
        }
    }
    out.extend_from_slice(left);
    out.extend_from_slice(right);
    out
}

/// Whether go-yaml v2 places key `a` before key `b`.
///
/// The first difference decides: two letters by code point, a letter after anything else, and
/// other characters by the numbers that begin there, then by how long those are.
fn is_before(a: &str, b: &str) -> bool {
    let mut same = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    while !a.is_char_boundary(same) {
        same -= 1;
    }
    let (common, a, b) = (&a[..same], &a[same..], &b[same..]);
    let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else {
        return a.len() < b.len();
    };
    match (is_letter(x), is_letter(y)) {
        (true, true) => return x < y,
        (false, false) => {}
        (_, y_is_letter) => return y_is_letter,
    }
    // A zero inside a number must not be taken for a leading one, so the number so far counts.
    let inside_number = (x == '0' || y == '0')
        && common.chars().rev().take_while(|c| is_digit(*c)).any(|c| c != '0');
    let ((x_number, x_length), (y_number, y_length)) =
        (number(a, inside_number), number(b, inside_number));
    (x_number, x_length, x) < (y_number, y_length, y)
}

/// The number that `text` begins with and how many digits it has.
fn number(text: &str, inside_number: bool) -> (i64, usize) {
    let digits = text.chars().take_while(|c| is_digit(*c));
    // Parity(go-yaml v2): long numbers wrap around, and digits of other scripts count from `'0'`.
    digits.fold((i64::from(inside_number), 0), |(number, length), digit| {
        let digit = i64::from(u32::from(digit)) - i64::from(u32::from('0'));
        (number.wrapping_mul(10).wrapping_add(digit), length + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(keys: &[&str]) -> String {
        let map = keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        let keys: Vec<&str> = sorted(&map).into_iter().map(|(key, _)| key).collect();
        keys.join(" ")
    }

    #[test]
    fn numbers_sort_by_value_and_letters_come_last() {
        assert_eq!(
            order(&["é", "z", "aB", "ab", "a10", "a2", "a01", "a1", "a00", "a0", "a_b"]),
            "a_b a0 a00 a1 a01 a2 a10 aB ab z é"
        );
        assert_eq!(
            order(&["A", "10", "9", "_x", "-", "a/b", "a.b", "a-b"]),
            "- _x 9 10 A a-b a.b a/b"
        );
        assert_eq!(order(&["v100", "v101", "v10", "v1000"]), "v10 v100 v101 v1000");
        assert_eq!(order(&["٣", "٢", "5"]), "5 ٢ ٣");
    }

    #[test]
    fn keys_whose_comparison_runs_in_circles_have_one_fixed_order() {
        assert!(is_before("v1b", "v2") && is_before("v2", "v10") && is_before("v10", "v1b"));
        // Go 1.26 gives these orders most often.
        assert_eq!(order(&["v1", "v2", "v10", "v1beta1"]), "v1 v10 v1beta1 v2");
        assert_eq!(order(&["1", "2", "3", "10", "1a", "2a"]), "1 10 1a 2 2a 3");
    }

    #[test]
    fn a_number_too_long_for_64_bits_wraps_around() {
        assert!(is_before("9223372036854775808", "1"));
        assert!(is_before("18446744073709551616", "2"));
    }

    proptest! {
        #[test]
        fn sorting_loses_no_key(keys in proptest::collection::btree_set("[a-b0-9._é٣]{0,6}", 0..60)) {
            let map: Map<String, Value> = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
            let mut out: Vec<&str> = sorted(&map).into_iter().map(|(key, _)| key).collect();
            out.sort_unstable();
            prop_assert_eq!(out, keys.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
