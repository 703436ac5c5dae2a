//! What functions know of the world.

use std::ops::Deref;

use golang::time::{Time, Zone};
use golang::value::Map;

/// Fills a buffer with random bytes that nobody can guess.
pub type Fill = dyn Fn(&mut [u8]) + Send + Sync;

/// The world as templates see it. A run of a template is a function of this, its data and its text.
pub trait TemplateEnvironment: Send + Sync {
    /// The time at which templates run, in the local zone.
    fn now(&self) -> Time;

    /// The local zone.
    fn local(&self) -> &Zone;

    /// Where random bytes come from; `None` where others draw at the same time, so that the result of the run depended on
    /// who is first. It is not used then.
    fn randomness(&self) -> Option<&Fill>;

    /// An address of a host: an empty text where names must not be looked up.
    ///
    /// # Errors
    /// Why there is none.
    fn address_of(&self, host: &str) -> Result<String, String>;

    /// Whether a template may change a map.
    ///
    /// A run whose data others read at the same time says no to what is theirs; its result is not used then.
    fn may_change(&self, _: &Map) -> bool {
        true
    }

    /// Takes note that a function has used the time or randomness, so that the next run may give something else.
    fn drew(&self, _: &'static str) {}
}

/// The world as one function sees it: what it draws is noted under its name.
pub(crate) struct FunctionEnvironment<'w> {
    pub(crate) template_environment: &'w dyn TemplateEnvironment,
    pub(crate) function: &'static str,
}

impl TemplateEnvironment for FunctionEnvironment<'_> {
    fn now(&self) -> Time {
        self.template_environment.drew(self.function);
        self.template_environment.now()
    }

    fn local(&self) -> &Zone {
        self.template_environment.local()
    }

    fn randomness(&self) -> Option<&Fill> {
        self.template_environment.drew(self.function);
        self.template_environment.randomness()
    }

    fn address_of(&self, host: &str) -> Result<String, String> {
        self.template_environment.address_of(host)
    }

    fn may_change(&self, map: &Map) -> bool {
        self.template_environment.may_change(map)
    }
}

/// The world of a function that needs random bytes. There is none for a run beside others, so nothing can be drawn out of
/// order.
#[derive(Clone, Copy)]
pub(crate) struct Draws<'w> {
    template_environment: &'w dyn TemplateEnvironment,
    fill: &'w Fill,
}

impl<'w> Draws<'w> {
    pub(crate) fn of(template_environment: &'w dyn TemplateEnvironment) -> Option<Self> {
        Some(Self { template_environment, fill: template_environment.randomness()? })
    }

    /// Fills a buffer with random bytes that nobody can guess.
    pub(crate) fn fill(&self, buffer: &mut [u8]) {
        (self.fill)(buffer);
    }
}

impl<'w> Deref for Draws<'w> {
    type Target = dyn TemplateEnvironment + 'w;

    fn deref(&self) -> &Self::Target {
        self.template_environment
    }
}

/// Why nothing was done; nobody reads it, since what becomes of such a run is not used.
pub(crate) const NOT_ALONE: &str = "others run at the same time";
