//! The order in which go-yaml v2 writes the keys of a mapping: letters last, and numbers by their value.
//!
//! Here: the comparison of two keys, and a sort with a fixed result even if the comparison is contradictory. Elsewhere:
//! Go's classes of letters and digits (`character_classes`).

mod character_classes;

use character_classes::{is_digit, is_letter};

use crate::YamlDialect;

/// Runs up to this length are sorted by insertion, as in Go's `sort.Sort`.
const INSERTION_SORT_RUN_COUNT: usize = 12;

/// Sorts entries by their keys, as this version of the library does.
///
/// # Guarantees
/// The same entries always have the same order. For up to twelve entries, Go could have chosen this order, too.
pub(crate) fn sorted<K: AsRef<str>, V>(dialect: YamlDialect, entries: Vec<(K, V)>) -> Vec<(K, V)> {
    let is_before: fn(&str, &str) -> bool = match dialect {
        YamlDialect::V2 => is_before,
        YamlDialect::V3 => is_before_v3,
    };
    let is_sorted = entries.is_sorted_by(|(a, _), (b, _)| !is_before(b.as_ref(), a.as_ref()));
    if is_sorted && entries.len() <= INSERTION_SORT_RUN_COUNT {
        return entries;
    }
    let order = order(&entries, is_before);
    let mut entries: Vec<Option<(K, V)>> = entries.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| entries.get_mut(place).and_then(Option::take)).collect()
}

/// The indices of the entries in their new order.
fn order<K: AsRef<str>, V>(entries: &[(K, V)], is_before: fn(&str, &str) -> bool) -> Vec<usize> {
    let key = |place: usize| entries[place].0.as_ref();
    let mut places: Vec<usize> = (0..entries.len()).collect();
    // Differs(go-yaml v2): its comparison can run in circles (`v1b` < `v2` < `v10` < `v1b`), and Go
    // sorts from a random order, so such keys change places from run to run; here they stay.
    // Rust's own sorts may panic on such a comparison.
    for run in places.chunks_mut(INSERTION_SORT_RUN_COUNT) {
        for end in 1..run.len() {
            for place in (1..=end).rev() {
                if !is_before(key(run[place]), key(run[place - 1])) {
                    break;
                }
                run.swap(place, place - 1);
            }
        }
    }
    let mut width = INSERTION_SORT_RUN_COUNT;
    while width < places.len() {
        let pairs = places.chunks(2 * width);
        let is_before = |a: usize, b: usize| is_before(key(a), key(b));
        places = pairs.flat_map(|pair| merged(pair, width.min(pair.len()), is_before)).collect();
        width *= 2;
    }
    places
}

/// Merges the sorted halves of `pair`, whose second one begins at `middle`.
fn merged(pair: &[usize], middle: usize, is_before: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let (mut left, mut right) = pair.split_at(middle);
    let mut out = Vec::with_capacity(pair.len());
    while let ([l, rest_left @ ..], [r, rest_right @ ..]) = (left, right) {
        if is_before(*r, *l) {
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

/// Whether go-yaml v2 writes key `a` before key `b`.
///
/// The first difference decides. Two letters are compared by code point, and a letter comes after any other character.
/// Other characters are compared by the numbers that begin there, and then by the length of these numbers.
fn is_before(a: &str, b: &str) -> bool {
    let (common, a, b) = split(a, b);
    let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else {
        return a.len() < b.len();
    };
    match (is_letter(x), is_letter(y)) {
        (true, true) => return x < y,
        (false, false) => {}
        (_, y_is_letter) => return y_is_letter,
    }
    is_less_number(common, a, b)
}

/// Whether go-yaml v3 writes key `a` before key `b`. Unlike in version 2, letters after a digit come first.
fn is_before_v3(a: &str, b: &str) -> bool {
    let (common, a, b) = split(a, b);
    let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else {
        return a.len() < b.len();
    };
    match (is_letter(x), is_letter(y)) {
        (true, true) => x < y,
        (false, false) => is_less_number(common, a, b),
        (x_is_letter, y_is_letter) => {
            let is_behind_digit = common.chars().next_back().is_some_and(is_digit);
            if is_behind_digit { x_is_letter } else { y_is_letter }
        }
    }
}

/// The common beginning of two keys, and the rest of each.
fn split<'k>(a: &'k str, b: &'k str) -> (&'k str, &'k str, &'k str) {
    let mut same = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    while !a.is_char_boundary(same) {
        same -= 1;
    }
    (&a[..same], &a[same..], &b[same..])
}

/// Compares the rest of two keys by the numbers that begin there.
fn is_less_number(common: &str, a: &str, b: &str) -> bool {
    let x = a.chars().next();
    let y = b.chars().next();
    // A zero inside a number must not be taken for a leading one, so the number so far counts.
    let inside_number = (x == Some('0') || y == Some('0'))
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
        order_of(YamlDialect::V2, keys)
    }

    fn order_of(dialect: YamlDialect, keys: &[&str]) -> String {
        let mut entries: Vec<(&str, ())> = keys.iter().map(|key| (*key, ())).collect();
        entries.sort_unstable();
        let keys: Vec<&str> = sorted(dialect, entries).into_iter().map(|(key, ())| key).collect();
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
    fn version_3_puts_letters_behind_a_digit_first() {
        assert_eq!(
            order_of(YamlDialect::V3, &["a1b", "a1_", "a12", "a_", "ab"]),
            "a_ a1b a1_ a12 ab"
        );
        assert_eq!(
            order_of(YamlDialect::V2, &["a1b", "a1_", "a12", "a_", "ab"]),
            "a_ a1_ a12 a1b ab"
        );
    }

    #[test]
    fn a_number_too_long_for_64_bits_wraps_around() {
        assert!(is_before("9223372036854775808", "1"));
        assert!(is_before("18446744073709551616", "2"));
    }

    proptest! {
        #[test]
        fn sorting_loses_no_key(keys in proptest::collection::btree_set("[a-b0-9._é٣]{0,6}", 0..60)) {
            let entries = keys.iter().map(|key| (key.as_str(), ())).collect();
            let sorted = sorted(YamlDialect::V2, entries);
            let mut out: Vec<&str> = sorted.into_iter().map(|(key, ())| key).collect();
            out.sort_unstable();
            prop_assert_eq!(out, keys.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
