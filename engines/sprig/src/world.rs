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

    /// Whether a function may ask for random bytes, of which others draw at the same time, else as [`World::may_change`].
    fn may_draw(&self) -> bool {
        true
    }
}

/// Why nothing was done; nobody reads it, since what becomes of such a run is not used.
pub(crate) const NOT_ALONE: &str = "others run at the same time";
