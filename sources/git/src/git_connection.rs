//! The Git protocol with a remote: the handshake, listing references, fetching a pack, and sending one.
//!
//! There is no negotiation, because each fetch starts from an empty repository. The client names the wanted commits and sends
//! "done".
//! Elsewhere: the transports under it (`smart_http`, `ssh`), reading a fetched pack (`commit_snapshot`), making a pack and
//! reading the answer (`push`).

use std::convert::identity;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::Path;

use gix::hash::ObjectId;
use gix::odb::pack;
use gix::progress::Discard;
use gix::protocol::fetch::negotiate::{Action, Round, one_round};
use gix::protocol::fetch::{
    Arguments, Context as HelmfileFetchContext, Negotiate, Options, Response,
};
use gix::protocol::fetch::{Shallow, Tags};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::{Handshake, LsRefsCommand};
use gix_transport::client::blocking_io::{HandleProgress, Transport};
use gix_transport::client::{MessageKind, WriteMode};
use gix_transport::{Protocol, Service};

use super::operation_limits::GitOperation;
use super::push::PushError;
use super::remote_url::RemoteScheme;
use super::server_cache::GitServerCache;
use super::{Error, GitRemote, smart_http, ssh};

/// The longest report on a push, which has a line for each reference.
const LARGEST_REPORT: u64 = 1 << 20;

/// The longest answer to a push: the report, and the messages of hooks.
const LARGEST_PUSH_ANSWER: u64 = 16 << 20;

/// The longest list of references, which is held in memory.
const LARGEST_REFERENCE_LIST: u64 = 64 << 20;

/// A connection after the handshake.
pub(super) struct GitConnection {
    transport: Box<dyn Transport>,
    handshake: Handshake,
    /// Whether the server redirected the first request.
    is_redirected: bool,
    wire: GitOperation,
}

/// How much of the history is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryDepth {
    /// The commits alone.
    None,
    /// Only the commits, without their files if the server supports that.
    NoneNorFiles,
    /// The commits and their whole history.
    All,
    /// The commits and their whole history, without files if the server supports that.
    AllNorFiles,
}

/// A reference of the remote and the commit that it stands for, peeled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AdvertisedReference {
    pub(super) name: String,
    pub(super) id: ObjectId,
    /// The annotated tag that leads to the commit. `None` without such a tag object.
    pub(super) tag: Option<ObjectId>,
}

/// The name that we send to servers.
pub(super) fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("git/windlass-", env!("CARGO_PKG_VERSION")).to_owned()))
}

impl GitConnection {
    /// Connects and does the handshake of a fetch.
    pub(super) fn open(
        remote: &GitRemote,
        known: &GitServerCache,
        wire: &GitOperation,
    ) -> Result<Self, Error> {
        Self::open_service(Service::UploadPack, remote, known, wire)
    }

    /// Connects and does the handshake of a push. The server uses the old protocol then and lists all of its
    /// references.
    pub(super) fn open_to_push(
        remote: &GitRemote,
        known: &GitServerCache,
        wire: &GitOperation,
    ) -> Result<Self, Error> {
        Self::open_service(Service::ReceivePack, remote, known, wire)
    }

    fn open_service(
        service: Service,
        remote: &GitRemote,
        known: &GitServerCache,
        wire: &GitOperation,
    ) -> Result<Self, Error> {
        let transport = match remote.url.scheme() {
            RemoteScheme::Http | RemoteScheme::Https => {
                smart_http::transport(remote, known, None, service, wire)?
            }
            RemoteScheme::Ssh => ssh::transport(remote, known.egress(), service, wire)?,
        };
        Self::begin(transport, service, wire)
    }

    /// Continues after the handshake of an earlier conversation; `None` if none is remembered. Nothing is sent yet.
    ///
    /// Protocol 2 has no state over HTTP, so the server cannot tell the difference. But it may be another server now,
    /// so callers trust only an answer with the requested content.
    pub(super) fn resume(
        remote: &GitRemote,
        known: &GitServerCache,
        wire: &GitOperation,
    ) -> Option<Result<Self, Error>> {
        let said = known.handshake(remote)?;
        let service = Service::UploadPack;
        let transport = smart_http::transport(remote, known, Some(said), service, wire);
        Some(transport.and_then(|transport| Self::begin(transport, service, wire)))
    }

    fn begin(
        mut transport: Box<dyn Transport>,
        service: Service,
        wire: &GitOperation,
    ) -> Result<Self, Error> {
        let url = transport.to_url().into_owned();
        // Credentials were sent with the first request, and there are no others to try.
        let no_credentials = |_action| Ok(None);
        wire.narrow(LARGEST_REFERENCE_LIST);
        let shake_hands = || {
            let shaken = gix::protocol::handshake(
                &mut transport,
                service,
                no_credentials,
                Vec::new(),
                &mut Discard,
            );
            shaken.map_err(|error| wire.explain(&error))
        };
        let handshake = wire.contain(shake_hands, identity)?;
        wire.widen();
        let is_redirected = *transport.to_url() != url;
        let conversation = Self { transport, handshake, is_redirected, wire: wire.clone() };
        conversation.check_handshake(service)?;
        Ok(conversation)
    }

    /// Fails if the server offers a protocol that this client does not support.
    fn check_handshake(&self, service: Service) -> Result<(), Error> {
        let remote = self.wire.remote();
        if let Some(format) = self.capability("object-format").filter(|format| format != "sha1") {
            return Err(Error::UnsupportedHash { remote, format: self.wire.quote(&format) });
        }
        if service == Service::ReceivePack && self.handshake.refs.is_none() {
            let cause = "it offers no references to push to".to_owned();
            return Err(Error::Protocol { remote, cause });
        }
        Ok(())
    }

    /// The server's answer to the handshake, if the next conversation can continue from there.
    ///
    /// `None` if the server redirected us, because it may redirect the next conversation to another address.
    pub(super) fn advertisement(&self) -> Option<Vec<u8>> {
        let Handshake { server_protocol_version, capabilities, .. } = &self.handshake;
        let format = capabilities.capability("object-format");
        let is_usual = format.is_none_or(|format| format.value() == Some("sha1".into()));
        let lists = capabilities.contains("ls-refs");
        if self.is_redirected || *server_protocol_version != Protocol::V2 || !lists || !is_usual {
            return None;
        }
        let mut said = b"000eversion 2\n".to_vec();
        for capability in capabilities.iter() {
            let mut line = capability.name().to_vec();
            if let Some(value) = capability.value() {
                line.push(b'=');
                line.extend_from_slice(value);
            }
            line.push(b'\n');
            said.extend_from_slice(format!("{:04x}", line.len() + 4).as_bytes());
            said.append(&mut line);
        }
        said.extend_from_slice(b"0000");
        Some(said)
    }

    /// The references that start with one of the prefixes. A remote of protocol 2 sends no others.
    pub(super) fn references(
        &mut self,
        prefixes: &[&str],
    ) -> Result<Vec<AdvertisedReference>, Error> {
        let listed = match &self.handshake.refs {
            Some(all) => all.clone(),
            None => {
                let mut wanted = RefPrefixes::new();
                wanted.extend(prefixes.iter().map(|prefix| (*prefix).into()));
                let wire = self.wire.clone();
                wire.narrow(LARGEST_REFERENCE_LIST);
                let list = || {
                    LsRefsCommand::new(Some(wanted), &self.handshake.capabilities, agent())
                        .invoke_blocking(&mut self.transport, &mut Discard, false)
                        .map_err(|error| wire.explain(&error))
                };
                let listed = wire.contain(list, identity)?;
                wire.widen();
                listed
            }
        };
        let found = listed.iter().filter_map(found);
        Ok(found.filter(|f| prefixes.iter().any(|p| f.name.starts_with(p))).collect())
    }

    /// Fetches commits into the folder of an object database, as one pack.
    ///
    /// No object may be larger than `largest` bytes.
    pub(super) fn fetch(
        &mut self,
        wants: &[ObjectId],
        history: HistoryDepth,
        repository: &Path,
        largest: u64,
    ) -> Result<(), Error> {
        let wire = self.wire.clone();
        wire.contain(|| self.fetch_pack(wants, history, repository, largest), identity)
    }

    fn fetch_pack(
        &mut self,
        wants: &[ObjectId],
        history: HistoryDepth,
        repository: &Path,
        largest: u64,
    ) -> Result<(), Error> {
        let is_without_files =
            matches!(history, HistoryDepth::NoneNorFiles | HistoryDepth::AllNorFiles);
        let mut negotiation = Negotiation { wants, is_without_files };
        let shallow = match history {
            HistoryDepth::None | HistoryDepth::NoneNorFiles => {
                Shallow::DepthAtRemote(NonZeroU32::MIN)
            }
            HistoryDepth::All | HistoryDepth::AllNorFiles => Shallow::NoChange,
        };
        let packs = repository.join("objects/pack");
        let options = pack::bundle::write::Options {
            // Sources are fetched in parallel, so each fetch stays on its own thread.
            thread_limit: Some(1),
            alloc_limit_bytes: Some(usize::try_from(largest).unwrap_or(usize::MAX)),
            ..pack::bundle::write::Options::default()
        };
        let received = gix::protocol::fetch(
            &mut negotiation,
            |reader, progress, stop| {
                pack::Bundle::write_to_directory(
                    reader,
                    Some(&packs),
                    progress,
                    stop,
                    None::<gix::odb::Handle>,
                    gix::hash::Kind::Sha1,
                    options,
                )?;
                Ok(true)
            },
            Discard,
            self.wire.stop(),
            HelmfileFetchContext {
                handshake: &mut self.handshake,
                transport: &mut self.transport,
                user_agent: agent(),
                trace_packetlines: false,
            },
            Options {
                shallow_file: repository.join("shallow"),
                shallow: &shallow,
                tags: Tags::None,
                reject_shallow_remote: false,
            },
        );
        received.map(|_| ()).map_err(|error| self.wire.explain(&error))
    }

    /// Whether the server offers something.
    pub(super) fn offers(&self, capability: &str) -> bool {
        self.handshake.capabilities.contains(capability)
    }

    /// The value of a capability of the server. `None` if the server does not have the capability or gives no value.
    pub(super) fn capability(&self, name: &str) -> Option<String> {
        let capability = self.handshake.capabilities.capability(name)?;
        Some(capability.value()?.to_string())
    }

    /// Sends commands and a pack, and reads the report. If `is_banded`, the server also sends the messages of hooks, and the
    /// wire stores them.
    ///
    /// # Errors
    /// The error says whether the server may have accepted the push: see [`GitOperation::unanswered`].
    pub(super) fn send_pack(
        &mut self,
        request: &[u8],
        is_banded: bool,
    ) -> Result<Vec<u8>, PushError> {
        let wire = self.wire.clone();
        let exchange = match self.transport.request(WriteMode::Binary, MessageKind::Flush, false) {
            Ok(exchange) => exchange,
            // No data were sent yet.
            Err(error) => return Err(wire.explain(&gix::Error::from_error(error)).into()),
        };
        wire.narrow(LARGEST_PUSH_ANSWER);
        let (mut writer, mut reader) = exchange.into_parts();
        let sent = writer.write_all(request).and_then(|()| writer.flush());
        drop(writer);
        if is_banded {
            let wire = wire.clone();
            let overhear = move |_is_error: bool, text: &[u8]| -> ControlFlow<()> {
                wire.overhear(text);
                wire.overhear(b"\n");
                ControlFlow::Continue(())
            };
            reader.set_progress_handler(Some(Box::new(overhear) as HandleProgress<'_>));
        }
        let mut report = Vec::new();
        let mut report_reader = reader.take(LARGEST_REPORT + 1);
        let read = || sent.and_then(|()| report_reader.read_to_end(&mut report));
        let read = wire.contain(read, |error| wire.fail(error));
        read.map_err(|error: io::Error| wire.unanswered(error))?;
        if report.len() as u64 > LARGEST_REPORT {
            let what = "the report on the push".to_owned();
            let limit = format!("{LARGEST_REPORT} bytes");
            return Err(PushError::Unanswered(Error::TooLarge {
                remote: wire.remote(),
                what,
                limit,
            }));
        }
        Ok(report)
    }
}

fn found(reference: &Ref) -> Option<AdvertisedReference> {
    let (name, id, tag) = match reference {
        Ref::Peeled { full_ref_name, object, tag } => (full_ref_name, *object, Some(*tag)),
        Ref::Direct { full_ref_name, object } => (full_ref_name, *object, None),
        Ref::Symbolic { full_ref_name, object, tag, .. } => (full_ref_name, *object, *tag),
        Ref::Unborn { .. } => return None,
    };
    // The client cannot have asked for a name that is not UTF-8.
    Some(AdvertisedReference { name: String::from_utf8(name.to_vec()).ok()?, id, tag })
}

/// Requests the given commits, and offers none that we have already.
struct Negotiation<'a> {
    wants: &'a [ObjectId],
    is_without_files: bool,
}

impl Negotiate for Negotiation<'_> {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<Action> {
        Ok(Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _known: &[bool]) -> bool {
        self.wants.iter().for_each(|id| arguments.want(id));
        if self.is_without_files && arguments.can_use_filter() {
            arguments.filter("tree:0");
        }
        !self.wants.is_empty()
    }

    fn one_round(
        &mut self,
        _state: &mut one_round::State,
        _arguments: &mut Arguments,
        _previous: Option<&Response>,
    ) -> gix::Result<(Round, bool)> {
        let round = Round {
            haves_sent: 0,
            in_vain: 0,
            haves_to_send: 0,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
