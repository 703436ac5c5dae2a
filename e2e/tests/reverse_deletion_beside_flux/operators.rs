//! windlass or Flux's controllers, for the namespace of one story.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::{Story, WindlassProcess};
use e2e::operator_process::OperatorProcess;

/// The program that reconciles a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitOpsOperator {
    Windlass,
    Flux,
}

impl GitOpsOperator {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Windlass => "windlass",
            Self::Flux => "flux",
        }
    }

    /// How long other controllers take to finalize an object. An operator that awaits nothing deletes all others meanwhile. What
    /// Flux does is recorded, so it has more time for that, also on a busy machine.
    pub(super) fn termination(self) -> Duration {
        match self {
            Self::Windlass => Duration::from_secs(4),
            Self::Flux => Duration::from_secs(10),
        }
    }
}

/// The processes of an operator. They end when this is dropped.
pub(super) struct OperatorProcesses {
    windlass: Option<WindlassProcess>,
    flux: Vec<OperatorProcess>,
}

impl OperatorProcesses {
    /// Starts an operator. Flux's controllers run `concurrency` objects of a kind at once. windlass has its default, because
    /// objects that wait occupy no worker of it. It reads dependencies again without a reason only after the end of a story, so
    /// each step was triggered by the previous one.
    pub(super) async fn start(
        operator: GitOpsOperator,
        story: &Story,
        concurrency: u32,
    ) -> Result<Self> {
        match operator {
            GitOpsOperator::Windlass => {
                let windlass =
                    WindlassProcess::start_for(story, &["--requeue-dependency=10m"]).await?;
                Ok(Self { windlass: Some(windlass), flux: Vec::new() })
            }
            GitOpsOperator::Flux => {
                let concurrent = format!("--concurrent={concurrency}");
                // By default, Flux asks whether a dependency is ready every 30 s.
                let flags = ["--requeue-dependency=2s", &concurrent];
                let flux = story.flux_controllers(&flags).await?;
                Ok(Self { windlass: None, flux })
            }
        }
    }

    /// Checks that no process has ended.
    pub(super) fn ensure_running(&mut self) -> Result<()> {
        let windlass = self.windlass.iter_mut().map(|it| &mut it.operator);
        for process in windlass.chain(&mut self.flux) {
            ensure!(process.is_running()?, "an operator ended:\n{}", process.tail(30));
        }
        Ok(())
    }
}
