//! Pages about objects, rendered on the server: those of `windlass ui`, which one person reads on the same machine.
//!
//! Every page is a command, shown at its foot, and `Accept: application/json` gets what `-o json` prints. Nothing here writes
//! to a cluster, and no page has a value of a Secret. Elsewhere: finding out what pages show (`windlass-answers`), connections
//! (`windlass-http-server`), the command (`windlass-cli`).

mod board;
mod guard;
mod href;
mod page_query;
mod page_reader;
mod pages;
mod parts;
mod response;
mod route;
mod server;
mod shell_line;
mod style;

pub use self::server::LocalWebServer;
