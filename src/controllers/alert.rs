//! Alert: which events go to a Provider. Nothing runs for it; whoever dispatches an event reads it.

use std::sync::Arc;
use std::time::Duration;

use crds::notification::Alert;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::context::Context;
use super::delivery::CONTROLLER;
use super::kind::ControllerKind;
use super::provider::tend;

impl ControllerKind for Alert {
    const CONTROLLER: &'static str = CONTROLLER;
    const APPLIES: bool = false;

    type ControllerState = ();

    fn announcement(&self) -> String {
        String::new()
    }

    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        async move { tend(&self, &context).await }.boxed()
    }
}
