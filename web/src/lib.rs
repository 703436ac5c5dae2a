//! Web pages about objects, rendered on the server. `windlass ui` serves them to one user on the same machine. `windlass serve
//! --web-addr` serves them to users who log in.
//!
//! Each page has an equivalent command, which the page shows at its foot. With `Accept: application/json`, the server returns
//! the output of that command with `-o json`.
//! Only a form of a page can change something (`actions`), and no page shows a value of a Secret.
//! Elsewhere: the data of pages and the requests of forms (`windlass-answers`), connections (`windlass-http-server`), the
//! command (`windlass-cli`).

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
