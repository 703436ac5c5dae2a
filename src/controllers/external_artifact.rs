//! ExternalArtifact: an artifact that somebody else's controller provides. Nothing runs for it; whoever reads it is woken.

use std::sync::Arc;
use std::time::Duration;

use crds::Source as _;
use crds::source::ExternalArtifact;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use reconcile::Node;

use super::context::Context;
use super::run::Controlled;

impl Controlled for ExternalArtifact {
    const CONTROLLER: &'static str = "source-controller";
    const APPLIES: bool = false;

    fn trigger(&self) -> String {
        String::new()
    }

    fn announcement(&self) -> String {
        let artifact = self.artifact();
        artifact.map(|a| format!("{} {} {}", a.revision, a.digest, a.url)).unwrap_or_default()
    }

    fn run(self: Arc<Self>, _context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        std::future::ready(None).boxed()
    }

    fn forget(_node: &Node, _context: &Context) {}
}
