//! Templates run with all functions, for the tests of this crate.

use std::sync::atomic::{AtomicU64, Ordering};

use golang::GoRuntimeValue;
use golang::time::{GoTime, GoTimeZone};
use gotemplate::{MissingKeyPolicy, REQUIRED_STACK_BYTES, TemplateSet};

use crate::{RandomFill, TemplateEnvironment};

/// An environment at noon of the second day of 2020, whose randomness is a well-mixed counter.
#[derive(Debug)]
pub(crate) struct DeterministicEnvironment;

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl TemplateEnvironment for DeterministicEnvironment {
    fn now(&self) -> GoTime {
        GoTime::from_unix(1_577_966_400, 0, GoTimeZone::Utc)
    }

    fn local(&self) -> &GoTimeZone {
        &GoTimeZone::Utc
    }

    fn randomness(&self) -> Option<&RandomFill> {
        Some(&fill)
    }

    fn address_of(&self, _: &str) -> Result<String, String> {
        Ok(String::new())
    }
}

fn fill(buffer: &mut [u8]) {
    for chunk in buffer.chunks_mut(8) {
        let step = COUNTER.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut mixed = step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bytes = (mixed ^ mixed >> 31).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// The output of a template, or the error of its function.
pub(crate) fn render(template: &str) -> String {
    render_with(template, GoRuntimeValue::Nil)
}

/// Renders a template with data, like [`render`].
pub(crate) fn render_with(template: &str, data: GoRuntimeValue) -> String {
    let run = || {
        let functions = crate::functions::<DeterministicEnvironment>();
        let mut set = TemplateSet::new("t", functions).with_missing_key(MissingKeyPolicy::Zero);
        set.parse("t", template.as_bytes()).map_err(|error| error.to_string())?;
        set.run_with("t", data, &DeterministicEnvironment).map_err(|error| {
            let text = error.to_string();
            text.split_once(">: ").map_or(text.clone(), |(_, message)| message.to_owned())
        })
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn_scoped(scope, run);
        let result = thread.unwrap().join().unwrap();
        result.map_or_else(|error| error, |out| String::from_utf8_lossy(&out).into_owned())
    })
}

/// Compares the output of a template.
pub(crate) fn check(template: &str, wanted: &str) {
    assert_eq!(render(template), wanted, "{template}");
}
