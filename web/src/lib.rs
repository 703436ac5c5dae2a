//! Pages about objects, rendered on the server: those of `windlass ui`, which one person reads on the same machine, and those of
//! `windlass serve --web-addr`, for users who log in.
//!
//! Every page is a command, shown at its foot, and `Accept: application/json` gets what `-o json` prints. Only a form of a page
//! changes something (`actions`), and no page has a value of a Secret. Elsewhere: finding out what pages show and the requests
//! that forms send (`windlass-answers`), connections (`windlass-http-server`), the command (`windlass-cli`).

mod action_guard;
mod actions;
mod assets;
mod board;
mod frame;
mod guard;
mod href;
mod live;
mod login;
mod page_query;
mod page_reader;
mod pages;
mod parts;
mod response;
mod route;
mod server;
mod session_readers;
mod shared_read;
mod shell_line;
mod team_guard;
mod team_server;

pub use self::login::LoginOptions;
pub use self::server::LocalWebServer;
pub use self::team_server::TeamWebServer;
