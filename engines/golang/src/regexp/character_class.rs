//! Classes of characters: `[a-z]`, `\d`, `[:alpha:]`, `\p{Greek}`, written in the dialect of the `regex` crate.
//!
//! Here: the classes. Elsewhere: reading the text between `[` and `]` (`parse.rs`).

use std::fmt::Write as _;

/// A class that matches nothing.
pub(super) const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

/// The ranges and classes within one pair of brackets, in the order of the pattern.
#[derive(Default)]
pub(super) struct CharacterClass {
    text: String,
}

impl CharacterClass {
    /// Adds a range. Surrogates are not characters, and are left out.
    pub(super) fn range(&mut self, low: u32, high: u32) {
        let low = if matches!(low, 0xd800..=0xdfff) { 0xe000 } else { low };
        let high = if matches!(high, 0xd800..=0xdfff) { 0xd7ff } else { high };
        if low <= high {
            write!(self.text, r"\x{{{low:x}}}-\x{{{high:x}}}").expect("a string takes every text");
        }
    }

    /// Adds another class in its own brackets.
    pub(super) fn class(&mut self, class: &str) {
        self.text.push_str(class);
    }

    /// The class in brackets. `is_folded` makes it ignore case.
    pub(super) fn written(self, is_negated: bool, is_folded: bool) -> String {
        let class = match (self.text.as_str(), is_negated) {
            ("", false) => NOTHING.to_owned(),
            ("", true) => r"[\x{0}-\x{10FFFF}]".to_owned(),
            (text, false) => format!("[{text}]"),
            (text, true) => format!("[^{text}]"),
        };
        folded(class, is_folded)
    }
}

/// A part of a pattern. `is_folded` makes it ignore case.
pub(super) fn folded(text: String, is_folded: bool) -> String {
    if is_folded { format!("(?i:{text})") } else { text }
}

/// The character class that an escape such as `\d` stands for, of ASCII characters only. `None` if `letter` names no
/// class.
pub(super) fn perl(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => "[0-9]",
        b'D' => "[^0-9]",
        // Parity(go): without the vertical tab.
        b's' => r"[\t\n\f\r ]",
        b'S' => r"[^\t\n\f\r ]",
        b'w' => "[0-9A-Za-z_]",
        b'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

/// The character class with a name such as `alpha` in `[:alpha:]`. A `^` before the name negates the class. `None` if
/// no class has this name.
pub(super) fn posix(name: &str) -> Option<String> {
    let (sign, name) = name.strip_prefix('^').map_or(("", name), |name| ("^", name));
    let known = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
        "space", "upper", "word", "xdigit",
    ];
    known.contains(&name).then(|| format!("[[:{sign}{name}:]]"))
}

/// The translated Unicode category or script that `\p{…}` names. `None` if Go does not know the name.
///
/// Differs(go): Go 1.25 and later also take other spellings (`\p{Letter}`, `\p{greek}`) and refuse names of
/// scripts that have an underscore; here, as in Go before, there is one spelling of each.
pub(super) fn unicode(name: &str, is_negated: bool) -> Option<String> {
    let sign = if is_negated { "^" } else { "" };
    Some(match name {
        "Any" if is_negated => NOTHING.to_owned(),
        "Any" => r"[\x{0}-\x{10FFFF}]".to_owned(),
        // Everything without another category, be it assigned or not.
        "C" => {
            let sign = if is_negated { "" } else { "^" };
            format!(r"[{sign}[\p{{L}}\p{{M}}\p{{N}}\p{{P}}\p{{S}}\p{{Z}}&&{UNICODE_OF_GO}]]")
        }
        "Cn" => format!(r"[{sign}\p{{Cn}}[^{UNICODE_OF_GO}]]"),
        "Cs" if is_negated => r"[\x{0}-\x{10FFFF}]".to_owned(),
        "Cs" => NOTHING.to_owned(),
        _ if CATEGORIES.contains(&name) => format!(r"[{sign}\p{{gc={name}}}&&{UNICODE_OF_GO}]"),
        _ if SCRIPTS.contains(&name) => format!(r"[{sign}\p{{sc={name}}}&&{UNICODE_OF_GO}]"),
        _ => return None,
    })
}

/// The characters of the Unicode version that Go knows. The crate knows a later version.
const UNICODE_OF_GO: &str = r"\p{age=15.0}";

const CATEGORIES: [&str; 35] = [
    "Cc", "Cf", "Co", "L", "LC", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd",
    "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z",
    "Zl", "Zp", "Zs",
];

#[rustfmt::skip]
const SCRIPTS: [&str; 163] = [
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese",
    "Bamum", "Bassa_Vah", "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille",
    "Buginese", "Buhid", "Canadian_Aboriginal", "Carian", "Caucasian_Albanian", "Chakma", "Cham",
    "Cherokee", "Chorasmian", "Common", "Coptic", "Cuneiform", "Cypriot", "Cypro_Minoan",
    "Cyrillic", "Deseret", "Devanagari", "Dives_Akuru", "Dogra", "Duployan",
    "Egyptian_Hieroglyphs", "Elbasan", "Elymaic", "Ethiopic", "Georgian", "Glagolitic", "Gothic",
    "Grantha", "Greek", "Gujarati", "Gunjala_Gondi", "Gurmukhi", "Han", "Hangul",
    "Hanifi_Rohingya", "Hanunoo", "Hatran", "Hebrew", "Hiragana", "Imperial_Aramaic", "Inherited",
    "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese", "Kaithi", "Kannada",
    "Katakana", "Kawi", "Kayah_Li", "Kharoshthi", "Khitan_Small_Script", "Khmer", "Khojki",
    "Khudawadi", "Lao", "Latin", "Lepcha", "Limbu", "Linear_A", "Linear_B", "Lisu", "Lycian",
    "Lydian", "Mahajani", "Makasar", "Malayalam", "Mandaic", "Manichaean", "Marchen",
    "Masaram_Gondi", "Medefaidrin", "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive",
    "Meroitic_Hieroglyphs", "Miao", "Modi", "Mongolian", "Mro", "Multani", "Myanmar", "Nabataean",
    "Nag_Mundari", "Nandinagari", "New_Tai_Lue", "Newa", "Nko", "Nushu", "Nyiakeng_Puachue_Hmong",
    "Ogham", "Ol_Chiki", "Old_Hungarian", "Old_Italic", "Old_North_Arabian", "Old_Permic",
    "Old_Persian", "Old_Sogdian", "Old_South_Arabian", "Old_Turkic", "Old_Uyghur", "Oriya",
    "Osage", "Osmanya", "Pahawh_Hmong", "Palmyrene", "Pau_Cin_Hau", "Phags_Pa", "Phoenician",
    "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan", "Saurashtra", "Sharada", "Shavian",
    "Siddham", "SignWriting", "Sinhala", "Sogdian", "Sora_Sompeng", "Soyombo", "Sundanese",
    "Syloti_Nagri", "Syriac", "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri",
    "Tamil", "Tangsa", "Tangut", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta",
    "Toto", "Ugaritic", "Vai", "Vithkuqi", "Wancho", "Warang_Citi", "Yezidi", "Yi",
    "Zanabazar_Square",
];
