//! YAML of go-yaml v3: nodes that keep their comments, styles, tags and positions, and are written back as they were
//! read.
//!
//! ```
//! use goyaml::v3::{self, YamlLayout};
//!
//! let text = "\
//! ## the web tier
//! replicas: 3 # on weekdays
//! ports: [80, 443]
//! ";
//! let mut documents = v3::parse(text.as_bytes(), &goyaml::YamlLimits::default())?;
//! let map = &mut documents[0].content[0];
//! map.get_mut("replicas").expect("it is there").value = "5".to_owned();
//! let layout = YamlLayout { indent: 2, compact_sequences: true };
//! assert_eq!(v3::emit(&documents[0], &layout)?, text.replace("3 #", "5 #"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A tour
//! The scanner and the parser are those of the crate's root; for this version they also give each
//! event its comments.
//! 1. `compose` makes nodes of events, a document at a time ([`YamlNodeDocumentReader`], [`parse`]).
//! 2. [`YamlNode`] is the tree that is read and changed; `content` holds children so that no depth
//!    costs stack, `notes` what few nodes have, and `tag` says what a node means.
//! 3. `decode` gives the JSON of a node ([`to_json`]).
//! 4. [`emit()`] walks a tree; `emit/node_emitter.rs` puts comments, indicators and indentation where Go
//!    puts them, and `emit/writer.rs` writes scalars.
//! 5. `encode` makes the nodes that Go writes for a value ([`encode()`]).
//! 6. `scalar_positions` finds where in the text each scalar stands, for callers that replace a few
//!    ([`scalar_places`]).
//! 7. `round_trip` finds the nodes that writing and reading again would not change ([`is_stable`]).
//!
//! This module does not know what a key means in kustomize or Kubernetes.

mod compose;
mod decode;
mod emit;
mod encode;
mod node;
mod node_anchor_and_comments;
mod node_children;
mod round_trip_stable_nodes;
mod scalar_positions;
mod scalar_value;
mod tag;

pub use compose::{YamlNodeDocumentReader, parse};
pub use decode::{check, to_json};
pub use emit::{NodeEmitError, YamlLayout, emit, emit_documents, emit_each};
pub use encode::{encode, encoded_node};
pub use node::{YamlNode, YamlNodeKind, YamlNodeStyle};
pub use node_anchor_and_comments::{AnchorOrCommentKind, NodeAnchorAndComments};
pub use node_children::YamlNodeChildren;
pub use round_trip_stable_nodes::is_stable;
pub use scalar_positions::{ScalarPosition, scalar_places};
pub use scalar_value::{DecodedScalar, scalar};
