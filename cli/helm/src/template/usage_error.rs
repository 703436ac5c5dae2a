//! Explains errors of the command line in the words of Helm's own parser.
//!
//! Elsewhere: the flags (`flags.rs`).

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Helm's text for an error of clap. `None` if Helm has none, for example for help.
pub fn explain(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let flag = context(ContextKind::InvalidArg).unwrap_or_default();
    // The flag is written as `--set <VALUES>` or `-s, --show-only <TEMPLATE>`.
    let name = flag.split(['=', ' ', '[']).next().unwrap_or_default();
    Some(match error.kind() {
        ErrorKind::UnknownArgument if name.starts_with("--") => format!("unknown flag: {name}"),
        ErrorKind::UnknownArgument => {
            let letter = name.trim_start_matches('-').chars().next().unwrap_or('-');
            format!("unknown shorthand flag: '{letter}' in {name}")
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            match context(ContextKind::InvalidValue).filter(|value| !value.is_empty()) {
                None => match last_short() {
                    Some(letter) => format!("flag needs an argument: '{letter}' in -{letter}"),
                    None => format!("flag needs an argument: {name}"),
                },
                Some(value) => format!(
                    "invalid argument {value:?} for {name:?} flag: strconv.ParseBool: parsing {value:?}: invalid syntax"
                ),
            }
        }
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return None,
        _ => {
            let text = error.to_string();
            text.trim_start_matches("error: ").trim_end().to_owned()
        }
    })
}

/// The single-letter flag that is the last word of the command line. `None` if the last word is not such a flag.
fn last_short() -> Option<char> {
    let last = std::env::args().next_back()?;
    let mut letters = last.strip_prefix('-')?.chars();
    letters.next().filter(|letter| *letter != '-' && letters.next().is_none())
}
