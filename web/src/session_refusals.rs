//! Sessions whose users the API server did not name. Their requests are answered from here for a while, so that reloaded pages do
//! not ask the API server each time.
//!
//! Elsewhere: asking it (`page_data_reader`), and readers (`session_readers`).

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::page_data_reader::UnknownUser;

/// How many sessions are remembered. Another one takes the place of that which would be asked about next.
const MAX_REFUSED_SESSIONS: usize = 1_024;

/// Why a session gets no page, and until when.
struct SessionRefusal {
    why: Arc<UnknownUser>,
    until: Instant,
}

/// The refusals, by the ids of their sessions.
#[derive(Default)]
pub(crate) struct SessionRefusals(BTreeMap<String, SessionRefusal>);

impl SessionRefusals {
    /// Remembers why the user of a session is unknown.
    pub(crate) fn add(&mut self, session: String, why: Arc<UnknownUser>, now: Instant) {
        self.0.retain(|_, refusal| now < refusal.until);
        if self.0.len() >= MAX_REFUSED_SESSIONS {
            let next = self.0.iter().min_by_key(|(_, refusal)| refusal.until);
            if let Some(next) = next.map(|(session, _)| session.clone()) {
                self.0.remove(&next);
            }
        }
        let until = now + why.retry_delay();
        self.0.insert(session, SessionRefusal { why, until });
    }

    /// Why a session gets no page now. `None` if the API server may be asked.
    pub(crate) fn find(&self, session: &str, now: Instant) -> Option<Arc<UnknownUser>> {
        self.0.get(session).filter(|refusal| now < refusal.until).map(|it| it.why.clone())
    }

    /// A session has ended.
    pub(crate) fn remove(&mut self, session: &str) {
        self.0.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn refusals_end_and_are_bounded() {
        let begin = Instant::now();
        let at = |second: u64| begin + Duration::from_secs(second);
        let mut refusals = SessionRefusals::default();
        let why = Arc::new(UnknownUser::NameMissing);
        for session in 0..MAX_REFUSED_SESSIONS + 5 {
            refusals.add(format!("{session:04}"), why.clone(), at(0));
        }
        assert_eq!(refusals.0.len(), MAX_REFUSED_SESSIONS);
        let last = format!("{:04}", MAX_REFUSED_SESSIONS + 4);
        assert!(refusals.find(&last, at(9)).is_some());
        assert!(refusals.find(&last, at(10)).is_none());
        refusals.add("a".to_owned(), why, at(10));
        assert_eq!(refusals.0.len(), 1, "what has ended is forgotten");
        refusals.remove("a");
        assert!(refusals.find("a", at(10)).is_none());
    }
}
