//! Type `googlepubsub`: the event as a message for a topic, with the headers of the Secret as attributes.

use crate::event::Event;
use crate::http::Flow;
use crate::options::Options;
use crate::parcel::{Parcel, PubSubMessage};

pub(super) fn flow(options: Options, event: Event) -> Flow {
    let (project, topic) = (options.url, options.channel);
    if project.is_empty() {
        return Flow::refused("GCP project ID cannot be empty");
    }
    if topic.is_empty() {
        return Flow::refused("GCP Pub/Sub topic ID cannot be empty");
    }
    let full = format!("projects/{project}/topics/{topic}");
    let message = PubSubMessage {
        project,
        topic,
        data: event.to_json(),
        attributes: options.headers,
        credentials: options.token,
    };
    Flow::Publish(
        Parcel::PubSub(Box::new(message)),
        Box::new(move |result| {
            Flow::end(
                result.map_err(|error| {
                    format!("error publishing to GCP Pub/Sub topic {full}: {error}")
                }),
            )
        }),
    )
}
