//! Checks that names can be found by a search, and that signatures name their parts.
//!
//! The module counts habits of code that no lint knows, over the workspace without its tests. Each habit has a limit.
//! A change that removes some of them lowers the limit.
//!
//! `words` checks the words of names, comments and messages. `lints` compares the settings of lints.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{assert_none, files, read};

/// How many types may have a single participle as their name, such as `Found`. A participle does not say what the
/// type is.
const MAX_PARTICIPLES: usize = 0;

/// How many type names may be defined [`MIN_REPETITIONS`] times or more, without the [`ORDINARY`] ones. A search for
/// such a name finds too much.
const MAX_REPEATED_NAMES: usize = 2;

/// How many numeric constants may have a name of one word. Such a name says neither what the constant limits nor its
/// unit.
const MAX_ONE_WORD_CONSTANTS: usize = 1;

/// How many functions may have a parameter that is a tuple. The parts of a tuple have no names.
const MAX_TUPLE_PARAMETERS: usize = 0;

/// How many statements may bind a tuple to a tuple. They are two statements that look like one.
const MAX_DOUBLE_BINDINGS: usize = 0;

/// How many types may be a `Result` in a `Result`. A reader does not see which of both is the error.
const MAX_NESTED_RESULTS: usize = 0;

/// How many definitions make a name a repeated one.
const MIN_REPETITIONS: usize = 8;

/// Names that mean the same in every module.
const ORDINARY: [&str; 5] = ["Error", "Options", "Args", "Key", "State"];

/// Participles that do not end in `ed`.
const IRREGULAR: [&str; 52] = [
    "Found",
    "Begun",
    "Bound",
    "Broken",
    "Brought",
    "Built",
    "Came",
    "Chosen",
    "Dealt",
    "Done",
    "Drawn",
    "Driven",
    "Fed",
    "Felt",
    "Fit",
    "Given",
    "Gone",
    "Got",
    "Heard",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Laid",
    "Led",
    "Left",
    "Lent",
    "Lost",
    "Made",
    "Meant",
    "Met",
    "Paid",
    "Ran",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Shut",
    "Slept",
    "Spent",
    "Stolen",
    "Stuck",
    "Taken",
    "Thought",
    "Told",
    "Woken",
    "Written",
    "Wished",
    "Forgotten",
    "Understood",
    "Overtaken",
    "Withheld",
];

/// Nouns that end in `ed`.
const NOUNS: [&str; 4] = ["Feed", "Need", "Seed", "Embed"];

const NUMBERS: [&str; 9] = ["u8", "u16", "u32", "u64", "usize", "i32", "i64", "f64", "Duration"];

/// Whether a module of tests begins here.
fn is_of_tests(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), TokenTree::Ident(word), ..] = tokens
    else {
        return false;
    };
    let attribute = attribute.stream().to_string().replace(' ', "");
    hash.as_char() == '#' && attribute == "cfg(test)" && word == "mod"
}

/// The places of each habit, as `file: name`.
#[derive(Debug, Default)]
struct NamingHabits {
    types: BTreeMap<String, Vec<String>>,
    one_word_constants: Vec<String>,
    tuple_parameters: Vec<String>,
    double_bindings: Vec<String>,
    nested_results: Vec<String>,
}

fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|it| it.is_ascii_lowercase());
    let is_regular = name.ends_with("ed") && !NOUNS.contains(&name);
    is_one_word && (is_regular || IRREGULAR.contains(&name))
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(name)) => Some(name.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(it)) if it.as_char() == sign)
}

fn tuple(token: Option<&TokenTree>) -> Option<Vec<TokenTree>> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            Some(group.stream().into_iter().collect())
        }
        _ => None,
    }
}

/// Whether a tuple has more than one part.
fn has_parts(tokens: &[TokenTree]) -> bool {
    let commas = tokens.iter().enumerate().filter(|(_, it)| is_punct(Some(it), ','));
    commas.map(|(at, _)| at).any(|at| at + 1 < tokens.len())
}

/// Whether all parts are plain names, with or without `mut`.
fn are_names(tokens: &[TokenTree]) -> bool {
    tokens.iter().all(|it| matches!(it, TokenTree::Ident(_)) || is_punct(Some(it), ','))
}

/// Whether the type of a parameter is a tuple.
fn has_tuple_parameter(parameters: &[TokenTree]) -> bool {
    (0..parameters.len()).any(|at| {
        let is_type = is_punct(parameters.get(at), ':')
            && !is_punct(parameters.get(at + 1), ':')
            && !(at > 0 && is_punct(parameters.get(at - 1), ':'));
        let rest = parameters[at + 1..].iter().skip_while(|it| {
            is_punct(Some(it), '&')
                || is_punct(Some(it), '\'')
                || ident(Some(it)).is_some_and(|it| it == "mut")
        });
        let first = rest.clone().next();
        is_type && tuple(first).is_some_and(|parts| has_parts(&parts))
    })
}

/// The parameters of a function from the tokens after its name. They are the first parentheses outside of its generics. `None`
/// if there are no such parentheses.
fn parameters(tokens: &[TokenTree]) -> Option<Vec<TokenTree>> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        let is_arrow = at > 0 && is_punct(tokens.get(at - 1), '-');
        match token {
            TokenTree::Punct(it) if it.as_char() == '<' => depth += 1,
            TokenTree::Punct(it) if it.as_char() == '>' && !is_arrow => depth -= 1,
            _ if depth == 0 => {
                if let Some(parameters) = tuple(Some(token)) {
                    return Some(parameters);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether a `Result` begins here, with or without a path, such as `anyhow::Result<T>`.
fn is_result(tokens: &[TokenTree]) -> bool {
    match tokens {
        [TokenTree::Ident(_), first, second, rest @ ..]
            if is_punct(Some(first), ':') && is_punct(Some(second), ':') =>
        {
            is_result(rest)
        }
        _ => ident(tokens.first()).is_some_and(|it| it == "Result") && is_punct(tokens.get(1), '<'),
    }
}

/// The place of tokens in a file.
#[derive(Debug, Clone, Copy)]
struct RustTokenContext {
    /// The tokens are in a test.
    is_test: bool,
    /// The tokens are directly in the body of an `impl`.
    is_impl: bool,
}

impl NamingHabits {
    /// Adds the habits of a file.
    fn add(&mut self, path: &str, tokens: TokenStream, scope: RustTokenContext) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut inner = RustTokenContext { is_impl: false, ..scope };
        let mut at = 0;
        while at < tokens.len() {
            if is_of_tests(&tokens[at..]) {
                at += 5;
                continue;
            }
            self.add_at(path, &tokens[at..], scope);
            match &tokens[at] {
                TokenTree::Ident(word) if *word == "impl" => inner.is_impl = true,
                TokenTree::Group(group) => {
                    let is_body = group.delimiter() == Delimiter::Brace;
                    let is_impl = inner.is_impl && is_body;
                    self.add(path, group.stream(), RustTokenContext { is_impl, ..scope });
                    inner.is_impl &= !is_body;
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn add_at(&mut self, path: &str, tokens: &[TokenTree], scope: RustTokenContext) {
        let Some(word) = ident(tokens.first()) else { return };
        let next = ident(tokens.get(1));
        let at = |name: &str| format!("{path}: {name}");
        // An associated type in an `impl` is not a definition, because the trait has chosen its name.
        let defines = match &*word {
            "type" => !scope.is_impl,
            word => ["struct", "enum", "trait", "union"].contains(&word),
        };
        if let Some(name) = next.as_ref().filter(|_| defines) {
            self.types.entry(name.clone()).or_default().push(at(name));
        }
        if scope.is_test {
            return;
        }
        match (&*word, next) {
            ("const", Some(name)) if is_punct(tokens.get(2), ':') => {
                let type_ = tokens[3..].iter().take_while(|it| !is_punct(Some(it), '='));
                let is_numeric =
                    type_.filter_map(|it| ident(Some(it))).any(|it| NUMBERS.contains(&&*it));
                let is_upper =
                    name.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit());
                if is_numeric && is_upper {
                    self.one_word_constants.push(at(&name));
                }
            }
            ("fn", Some(name))
                if parameters(&tokens[2..]).is_some_and(|it| has_tuple_parameter(&it)) =>
            {
                self.tuple_parameters.push(at(&name));
            }
            ("let", None) => {
                let names = tuple(tokens.get(1)).filter(|it| has_parts(it) && are_names(it));
                let values = tuple(tokens.get(3)).filter(|it| has_parts(it));
                let is_whole = is_punct(tokens.get(2), '=') && is_punct(tokens.get(4), ';');
                if names.is_some() && values.is_some() && is_whole {
                    self.double_bindings.push(at(&tokens[1].to_string()));
                }
            }
            ("Result", None) if is_punct(tokens.get(1), '<') && is_result(&tokens[2..]) => {
                self.nested_results.push(at("nested"));
            }
            _ => {}
        }
    }

    /// The habits that exceed their limits, with all places.
    fn faults(&self) -> Vec<String> {
        let participles: Vec<String> = self
            .types
            .iter()
            .filter(|it| is_participle(it.0))
            .flat_map(|it| it.1.clone())
            .collect();
        let repeated: Vec<String> = self
            .types
            .iter()
            .filter(|(name, all)| {
                all.len() >= MIN_REPETITIONS && !ORDINARY.contains(&name.as_str())
            })
            .map(|(name, all)| format!("{name}, {} times", all.len()))
            .collect();
        let mut faults = Vec::new();
        for (what, found, most) in [
            ("types named by a participle", &participles, MAX_PARTICIPLES),
            ("names of types that are defined very often", &repeated, MAX_REPEATED_NAMES),
            ("constants of one word", &self.one_word_constants, MAX_ONE_WORD_CONSTANTS),
            ("functions with a tuple as parameter", &self.tuple_parameters, MAX_TUPLE_PARAMETERS),
            ("several bindings in a `let`", &self.double_bindings, MAX_DOUBLE_BINDINGS),
            ("nested results", &self.nested_results, MAX_NESTED_RESULTS),
        ] {
            if found.len() > most {
                let all = found.join("\n  ");
                faults.push(format!("{} {what}, of at most {most}:\n  {all}", found.len()));
            }
        }
        faults
    }
}

fn habits() -> NamingHabits {
    let mut habits = NamingHabits::default();
    for path in files("", ".rs") {
        let is_test =
            path.contains("/tests/") || path.ends_with("tests.rs") || path.starts_with("e2e/tests");
        let tokens: TokenStream = read(&path).parse().unwrap_or_else(|e| panic!("{path}: {e}"));
        habits.add(&path, tokens, RustTokenContext { is_test, is_impl: false });
    }
    habits
}

#[test]
fn names_say_what_they_name() {
    let habits = habits();
    assert!(habits.types.len() > 1000, "only {} types were read", habits.types.len());
    assert_none(&habits.faults());
}

#[test]
fn each_habit_is_found() {
    let text = include_str!("names/sample.txt");
    let mut habits = NamingHabits::default();
    habits.add("a.rs", text.parse().unwrap(), RustTokenContext { is_test: false, is_impl: false });
    let participles = habits.types.keys().filter(|it| is_participle(it)).count();
    assert_eq!((participles, habits.types.len()), (2, 3), "{habits:#?}");
    assert_eq!(habits.one_word_constants, ["a.rs: MOST"]);
    assert_eq!(habits.tuple_parameters, ["a.rs: a"]);
    assert_eq!(habits.double_bindings.len(), 1);
    assert_eq!(habits.nested_results.len(), 2);
}
