//! The memory of one process over time: the kernel keeps the peak of all resident memory, but not that of the heap, and not
//! the peak of a part of a measurement.
//!
//! Here: asking ten times a second. Elsewhere: what is read (`e2e::process_usage`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::process_usage;
use parking_lot::Mutex;

/// How often the memory is read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Reads the memory of a process until it is dropped.
pub(crate) struct MemorySampler {
    state: Arc<Mutex<MemorySamplerState>>,
    thread: Option<JoinHandle<()>>,
}

struct MemorySamplerState {
    id: u32,
    /// MiB.
    peak: f64,
    is_ended: bool,
}

impl MemorySampler {
    /// Begins with a process.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn begin(id: u32) -> anyhow::Result<Self> {
        let state = MemorySamplerState { id, peak: 0.0, is_ended: false };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let thread =
            std::thread::Builder::new().name("memory-samples".into()).spawn(move || {
                while shared.lock().sample() {
                    std::thread::sleep(SAMPLE_INTERVAL);
                }
            })?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Reads that of another process from now on; the peak stays.
    pub(crate) fn follow(&self, id: u32) {
        self.state.lock().id = id;
    }

    /// From now on the peak is that of what follows.
    pub(crate) fn forget_peak(&self) {
        let mut state = self.state.lock();
        state.peak = 0.0;
        state.sample();
    }

    /// The highest memory that no file backs since the peak was forgotten, in MiB.
    pub(crate) fn peak(&self) -> f64 {
        let mut state = self.state.lock();
        state.sample();
        state.peak
    }

    /// The memory that no file backs now, in MiB.
    ///
    /// # Errors
    /// When the process has ended.
    pub(crate) fn now(&self) -> anyhow::Result<f64> {
        let id = self.state.lock().id;
        process_usage::anonymous_mebibytes(id)
    }
}

impl MemorySamplerState {
    /// Reads the memory once; returns whether there is more to read. A process that has ended has none until another is
    /// followed.
    fn sample(&mut self) -> bool {
        if let Ok(now) = process_usage::anonymous_mebibytes(self.id) {
            self.peak = self.peak.max(now);
        }
        !self.is_ended
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.state.lock().is_ended = true;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_not_below_the_memory_of_now_and_is_forgotten() {
        let sampler = MemorySampler::begin(std::process::id()).unwrap();
        let now = sampler.now().unwrap();
        assert!(now > 0.0);
        sampler.state.lock().peak = now * 1000.0;
        assert!(sampler.peak() >= now * 1000.0);
        sampler.forget_peak();
        assert!(sampler.peak() > 0.0 && sampler.peak() < now * 1000.0);
    }

    #[test]
    fn a_process_that_has_ended_keeps_its_peak_until_another_is_followed() {
        // Ids end at 2²².
        let sampler = MemorySampler::begin(1 << 30).unwrap();
        assert_eq!(sampler.peak(), 0.0);
        assert!(sampler.now().is_err());
        sampler.follow(std::process::id());
        assert!(sampler.peak() > 0.0);
    }
}
