//! What functions know of the world.

use golang::time::{Time, Zone};
use golang::value::Map;

/// The world as templates see it. A run of a template is a function of this, its data and its text.
pub trait World: Send + Sync {
    /// The time at which templates run, in the local zone.
    fn now(&self) -> Time;

    /// The local zone.
    fn local(&self) -> &Zone;

    /// Fills a buffer with random bytes that nobody can guess.
    fn fill(&self, buffer: &mut [u8]);

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
}

/// Why a map was not changed.
pub(crate) const NOT_ALONE: &str = "the map is read by others at the same time";
