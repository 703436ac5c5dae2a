//! Finds values that a chart generates randomly or from the current time. In a cluster, each upgrade generates others. So a
//! plan names these values, and compares only the rest.
//!
//! A release with such values is rendered twice, with other random numbers and another time. The words that differ are
//! masked. The rest of each text is compared, because a generated word must not hide another change. Elsewhere: rendering
//! (`release_rendering.rs`), generated values of helmfiles (`helmfile_plan_without_cluster.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use helm::chart::Chart;
use helm::render_environment::RandomFill;
use jiff::{SignedDuration, Timestamp};
use objects::Object;
use plan::UnknownValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The time at which charts are rendered, in seconds since 1970. It is fixed, because two renderings at the current time would
/// differ.
const RENDER_TIME_SECONDS: i64 = 1_767_225_600;

/// How much later the time of the second rendering is. The year, month, weekday, hour, minute and second all differ.
const SECOND_RENDERING_DELAY: SignedDuration =
    SignedDuration::from_secs(411 * 86_400 + 7 * 3600 + 1865);

/// The text that replaces generated words.
const DRAWN_TEXT_MASK: &str = "(drawn anew by each rendering)";

/// The base64 text that replaces generated binary data of a Secret.
const DRAWN_DATA_MASK: &str = "ZHJhd24gYW5ldyBieSBlYWNoIHJlbmRlcmluZw==";

/// Characters that count as part of a generated word, in addition to letters and digits.
const JOINING_CHARACTERS: &str = "+/=._-~:@%";

/// The time and the random numbers that templates can use.
pub(crate) struct TemplateRandomness {
    /// The current time for templates.
    pub(crate) now: Timestamp,
    /// The source of random bytes.
    pub(crate) random: Arc<RandomFill>,
    /// Whether a template has used random bytes.
    is_drawn: Arc<AtomicBool>,
}

impl TemplateRandomness {
    /// The time and the random numbers of the first rendering. They are the same in every run.
    pub(crate) fn fixed() -> Self {
        Self::new(fixed_time(), 0)
    }

    /// The time and the random numbers of the second rendering. They are also the same in every run.
    pub(crate) fn other() -> Self {
        let now = fixed_time().saturating_add(SECOND_RENDERING_DELAY).unwrap_or(Timestamp::MAX);
        Self::new(now, 1)
    }

    fn new(now: Timestamp, seed: u8) -> Self {
        let is_drawn = Arc::new(AtomicBool::new(false));
        let noted = is_drawn.clone();
        let bytes = randomness(seed);
        let random = Arc::new(move |buffer: &mut [u8]| {
            noted.store(true, Ordering::Relaxed);
            bytes(buffer);
        });
        Self { now, random, is_drawn }
    }

    /// Starts to watch whether templates use random bytes.
    pub(crate) fn watch(&self) -> RandomBytesWatch {
        RandomBytesWatch(self.is_drawn.clone())
    }
}

/// Watches whether templates have used random bytes.
pub(crate) struct RandomBytesWatch(Arc<AtomicBool>);

impl RandomBytesWatch {
    /// Whether a second rendering of the chart may have another result.
    pub(crate) fn may_differ(&self, chart: &Chart) -> bool {
        self.0.load(Ordering::Relaxed) || reads_time(chart)
    }
}

/// The fixed time that templates see.
pub(crate) fn fixed_time() -> Timestamp {
    Timestamp::from_second(RENDER_TIME_SECONDS).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Random bytes that are the same for each rendering.
pub(crate) fn fixed_randomness() -> Arc<RandomFill> {
    randomness(0)
}

fn randomness(seed: u8) -> Arc<RandomFill> {
    let blocks = AtomicU64::new(0);
    Arc::new(move |buffer: &mut [u8]| {
        for chunk in buffer.chunks_mut(32) {
            let mut hash = Sha256::new();
            hash.update([seed]);
            hash.update(blocks.fetch_add(1, Ordering::Relaxed).to_le_bytes());
            let block = hash.finalize();
            chunk.iter_mut().zip(block.iter()).for_each(|(to, from)| *to = *from);
        }
    })
}

/// Whether a template of a chart or its dependencies contains the word `now`.
fn reads_time(chart: &Chart) -> bool {
    let mut open = vec![chart];
    while let Some(chart) = open.pop() {
        if chart.templates.iter().any(|file| has_word(&file.data, b"now")) {
            return true;
        }
        open.extend(&chart.charts);
    }
    false
}

fn has_word(text: &[u8], word: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.split(|byte| !is_letter(byte)).any(|found| found == word)
}

/// Masks the values that differ in a second rendering of a release. Returns the names of these values.
pub(crate) fn mask(objects: &mut [Object], other: &[Object]) -> Vec<UnknownValue> {
    let ids = |objects: &[Object]| objects.iter().map(Object::id).collect::<Vec<_>>();
    if ids(objects) != ids(other) {
        return vec![unknown("which objects the chart makes".to_owned())];
    }
    let mut named = Vec::new();
    for (object, other) in objects.iter_mut().zip(other) {
        let subject = object.id().subject();
        let is_secret = object.kind() == "Secret" && object.api_version() == "v1";
        let paths = masked_paths(object.fields_mut(), other.fields(), is_secret);
        named.extend(paths.into_iter().map(|path| unknown(format!("{subject}, {path}"))));
    }
    named
}

fn unknown(what: String) -> UnknownValue {
    let reason =
        "the chart draws it at random or takes it from the time, so each upgrade makes another one";
    UnknownValue { what, reason: reason.to_owned() }
}

/// A field of an object in two renderings.
struct FieldOfTwoRenderings<'v> {
    path: String,
    value: &'v mut Value,
    other: &'v Value,
}

/// Masks the differences in strings, and returns the paths of all values that differ.
fn masked_paths(
    fields: &mut Map<String, Value>,
    others: &Map<String, Value>,
    is_secret: bool,
) -> Vec<String> {
    let mut paths = Vec::new();
    let mut open = Vec::new();
    push_fields("", fields, others, &mut open, &mut paths);
    while let Some(FieldOfTwoRenderings { path, value, other }) = open.pop() {
        if *value == *other {
            continue;
        }
        match (value, other) {
            (Value::Object(fields), Value::Object(others)) => {
                push_fields(&path, fields, others, &mut open, &mut paths);
            }
            (Value::Array(items), Value::Array(others)) => {
                if items.len() != others.len() {
                    paths.push(path);
                    continue;
                }
                let pairs = items.iter_mut().zip(others).enumerate();
                open.extend(pairs.map(|(at, (value, other))| FieldOfTwoRenderings {
                    path: format!("{path}/{at}"),
                    value,
                    other,
                }));
            }
            (value, other) => {
                mask_value(value, other, is_secret && path.starts_with("/data/"));
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths
}

/// Masks the differences in a value if both values are strings. `is_data` says that they are base64.
fn mask_value(value: &mut Value, other: &Value, is_data: bool) {
    let Value::String(text) = value else { return };
    let Some(other) = other.as_str() else { return };
    let masked = if is_data { masked_data(text, other) } else { masked_text(text, other) };
    if let Some(masked) = masked {
        *text = masked;
    }
}

fn masked_data(data: &str, other: &str) -> Option<String> {
    let decoded = |data: &str| String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok();
    match decoded(data).zip(decoded(other)) {
        Some((text, other)) => masked_text(&text, &other).map(|it| BASE64_STANDARD.encode(it)),
        None => Some(DRAWN_DATA_MASK.to_owned()),
    }
}

/// Masks the words of a text that differ in the second rendering. Returns `None` if the numbers of words differ, because then
/// it is unknown which words correspond. In that case, nothing is masked.
fn masked_text(text: &str, other: &str) -> Option<String> {
    let is_of_word = |it: char| it.is_alphanumeric() || JOINING_CHARACTERS.contains(it);
    let ours = split_words(text, is_of_word);
    let others = split_words(other, is_of_word);
    if ours.len() != others.len() {
        return None;
    }
    Some(ours.into_iter().zip(others).map(|(ours, other)| masked_word(ours, other)).collect())
}

/// Masks the parts of a word that differ. For example, `registry/app:` stays and the tag is masked.
fn masked_word(word: &str, other: &str) -> String {
    if word == other {
        return word.to_owned();
    }
    let ours = split_words(word, char::is_alphanumeric);
    let others = split_words(other, char::is_alphanumeric);
    if ours.len() == others.len() {
        return masked_parts(&ours, &others);
    }
    // Random base64 has its separators at other positions, so only the equal beginning and end stay.
    let is_same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let before = ours.iter().zip(&others).take_while(is_same).count();
    let rest = ours.len().min(others.len()) - before;
    let after = ours.iter().rev().zip(others.iter().rev()).take(rest).take_while(is_same).count();
    let begin: String = ours.iter().take(before).copied().collect();
    let end: String = ours.iter().skip(ours.len() - after).copied().collect();
    format!("{begin}{DRAWN_TEXT_MASK}{end}")
}

/// Masks the parts of a word that differ. Differing parts with only a separator between them, as in a time, get one mask.
fn masked_parts(ours: &[&str], others: &[&str]) -> String {
    let mut masked = String::new();
    let mut is_after_mask = false;
    let mut separator = "";
    for (part, other) in ours.iter().zip(others) {
        if part != other {
            if !is_after_mask {
                masked.push_str(DRAWN_TEXT_MASK);
            }
            is_after_mask = true;
            separator = "";
        } else if is_after_mask && separator.is_empty() && !part.starts_with(char::is_alphanumeric)
        {
            separator = part;
        } else {
            masked.push_str(separator);
            masked.push_str(part);
            is_after_mask = false;
            separator = "";
        }
    }
    masked.push_str(separator);
    masked
}

/// Splits a text into words and single other characters.
fn split_words(text: &str, is_of_word: impl Fn(char) -> bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut left = text;
    while let Some(first) = left.chars().next() {
        let end = match is_of_word(first) {
            true => left.find(|it: char| !is_of_word(it)).unwrap_or(left.len()),
            false => first.len_utf8(),
        };
        let (word, rest) = left.split_at(end);
        words.push(word);
        left = rest;
    }
    words
}

/// Adds the fields of two maps. A field that only one rendering has is recorded as a difference.
fn push_fields<'v>(
    path: &str,
    fields: &'v mut Map<String, Value>,
    others: &'v Map<String, Value>,
    open: &mut Vec<FieldOfTwoRenderings<'v>>,
    paths: &mut Vec<String>,
) {
    let below = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
    paths.extend(others.keys().filter(|name| !fields.contains_key(*name)).map(|it| below(it)));
    for (name, value) in fields {
        match others.get(name) {
            Some(other) => open.push(FieldOfTwoRenderings { path: below(name), value, other }),
            None => paths.push(below(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use helm::chart::ChartFile;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        Object::new(value).unwrap()
    }

    fn drawn(draws: &TemplateRandomness) -> [u8; 40] {
        let mut buffer = [0_u8; 40];
        (draws.random)(&mut buffer);
        (draws.random)(&mut buffer[..3]);
        buffer
    }

    #[test]
    fn two_renderings_draw_the_same_random_bytes_and_another_one_draws_others() {
        let fixed = drawn(&TemplateRandomness::fixed());
        assert_eq!(fixed, drawn(&TemplateRandomness::fixed()));
        assert_ne!(fixed[..8], fixed[8..16]);
        assert_ne!(fixed, drawn(&TemplateRandomness::other()));
        assert_eq!(TemplateRandomness::fixed().now, fixed_time());
        let time = |draws: TemplateRandomness| draws.now.strftime("%Y %m %a %H %M %S").to_string();
        let times = [time(TemplateRandomness::fixed()), time(TemplateRandomness::other())];
        let mut pairs = times[0].split(' ').zip(times[1].split(' '));
        assert!(pairs.all(|(one, other)| one != other), "{times:?}");
    }

    #[test]
    fn a_chart_may_differ_if_it_drew_or_has_the_word_now() {
        let chart = |text: &str| Chart {
            charts: vec![Chart {
                templates: vec![ChartFile {
                    name: "a.yaml".to_owned(),
                    data: text.as_bytes().into(),
                }],
                ..Chart::default()
            }],
            ..Chart::default()
        };
        let draws = TemplateRandomness::fixed();
        let watch = draws.watch();
        assert!(!watch.may_differ(&chart("unknown: {{ .Values.nowhere }}")));
        assert!(watch.may_differ(&chart("at: {{now | date \"2006\"}}")));
        drawn(&draws);
        assert!(watch.may_differ(&chart("a: 1")));
    }

    #[test]
    fn what_differs_is_masked_and_named_and_nothing_else() {
        let secret = |password: &str, port: u16| {
            let annotation = format!("the password is {password}");
            object(json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "db", "namespace": "shop", "annotations": {"a/b": annotation}},
                "data": {"password": password, "user": "YWRtaW4="}, "ports": [1, port]}))
        };
        let mut objects = [secret("/w==", 1), secret("/w==", 1)];
        let named = mask(&mut objects, &[secret("/g==", 2), secret("/w==", 1)]);
        let what: Vec<&str> = named.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "Secret/shop/db, /data/password",
                "Secret/shop/db, /metadata/annotations/a~1b",
                "Secret/shop/db, /ports/1"
            ]
        );
        assert_eq!(objects[0].get("data").unwrap()["password"], DRAWN_DATA_MASK);
        assert_eq!(objects[0].get("data").unwrap()["user"], "YWRtaW4=");
        let annotation = &objects[0].meta("annotations").unwrap()["a/b"];
        assert_eq!(*annotation, format!("the password is /{DRAWN_TEXT_MASK}=="));
        // Only a text can be masked, so the number stays.
        assert_eq!(objects[0].get("ports").unwrap()[1], 1);
        assert_eq!(objects[1], secret("/w==", 1));
    }

    #[test]
    fn what_is_beside_a_drawn_word_is_compared() {
        let masked = |text: &str, other: &str| {
            let masked = masked_text(text, other)?;
            Some(masked.replace(DRAWN_TEXT_MASK, "*"))
        };
        for (text, other, expected) in [
            ("Xa9", "q17", "*"),
            ("registry/app:Xa9", "registry/app:q17", "registry/app:*"),
            (
                "sh -c 'echo Xa9; curl evil'",
                "sh -c 'echo q17; curl evil'",
                "sh -c 'echo *; curl evil'",
            ),
            (
                "at 2026-01-01T00:00:00Z\nsize: 1",
                "at 2027-02-16T07:31:05Z\nsize: 1",
                "at *\nsize: 1",
            ),
            ("Xa9:between:Xa9", "q17:between:q17", "*:between:*"),
            ("key: a+b/c==", "key: abcd==", "key: *=="),
        ] {
            assert_eq!(masked(text, other).as_deref(), Some(expected));
        }
        assert_eq!(masked("one", "two words"), None);
        let data = |text: &str| BASE64_STANDARD.encode(text);
        let expected = data(&format!("user=admin\npassword={DRAWN_TEXT_MASK}\n"));
        let one = data("user=admin\npassword=Xa9\n");
        assert_eq!(masked_data(&one, &data("user=admin\npassword=q17\n")), Some(expected));
    }

    #[test]
    fn names_that_are_drawn_are_named_as_a_whole() {
        let job = |name: &str| {
            object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}}))
        };
        let mut objects = [job("a-1")];
        let named = mask(&mut objects, &[job("a-2")]);
        assert_eq!(named[0].what, "which objects the chart makes");
        assert_eq!(objects[0], job("a-1"));
        let mut keys = [object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a"}, "data": {"x": "1"}}))];
        let other = [object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a"}, "data": {"y": "1"}}))];
        let named = mask(&mut keys, &other);
        let what: Vec<&str> = named.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(what, ["ConfigMap/a, /data/x", "ConfigMap/a, /data/y"]);
    }
}
