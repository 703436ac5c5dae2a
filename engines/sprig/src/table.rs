//! The table of functions.

use golang::Value;
use gotemplate::{Call, Failure, Functions};

use crate::functions::ALL;
use crate::signature;
use crate::world::World;

/// A function of templates.
pub(crate) struct Entry {
    /// What templates call it.
    pub(crate) name: &'static str,
    /// What it takes and gives, as Go writes it. A second result `error` says nothing here: each body may fail.
    pub(crate) signature: &'static str,
    /// What it does.
    pub(crate) body: Body,
}

/// What a function does; it gets arguments of its signature only.
pub(crate) enum Body {
    /// With its arguments alone.
    Plain(fn(&[Value]) -> Result<Value, Failure>),
    /// Within the limits of the run: what makes long texts, or works for long.
    Bounded(fn(&mut Call<'_>, &[Value]) -> Result<Value, Failure>),
    /// With the world.
    Worldly(fn(&dyn World, &mut Call<'_>, &[Value]) -> Result<Value, Failure>),
}

/// All functions, for runs whose host is an `H`.
///
/// # Panics
/// Never: what entries say is parsed in a test.
pub fn functions<H: World + 'static>() -> Functions {
    let mut functions = Functions::default();
    for entry in ALL.iter().copied().flatten() {
        let Some(signature) = signature::parse(entry.signature) else {
            debug_assert!(false, "`{}` has no signature: {}", entry.name, entry.signature);
            continue;
        };
        match entry.body {
            Body::Plain(body) => functions.insert(entry.name, signature, move |_, args| body(args)),
            Body::Bounded(body) => functions.insert(entry.name, signature, body),
            Body::Worldly(body) => functions.insert(entry.name, signature, move |call, args| {
                let world = call.host::<H>().ok_or("this run knows nothing of the world")?;
                body(world, call, args)
            }),
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_what_it_says_and_no_name_is_there_twice() {
        let mut names = std::collections::BTreeSet::new();
        for entry in ALL.iter().copied().flatten() {
            let parsed = signature::parse(entry.signature).expect(entry.name);
            let shown = parsed.to_string();
            let said = entry
                .signature
                .strip_suffix(", error)")
                .map_or_else(|| entry.signature.to_owned(), |head| head.replacen(") (", ") ", 1));
            assert_eq!(shown, said, "{}", entry.name);
            assert!(names.insert(entry.name), "{} is there twice", entry.name);
        }
    }
}
