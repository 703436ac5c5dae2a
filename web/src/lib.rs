//! Web pages about objects, rendered on the server. `windlass ui` serves them to one user on the same machine. `windlass serve
//! --web-addr` serves them to users who log in.
//!
//! Each page has an equivalent command, which the page shows at its foot. With `Accept: application/json`, the server returns
//! the output of that command with `-o json`.
//! Only a form of a page can change something (`actions`), and no page shows a value of a Secret.
//! Elsewhere: the data of pages and the requests of forms (`windlass-answers`), connections (`windlass-http-server`), the
//! command (`windlass-cli`).

mod action_guard;
mod action_limits;
mod actions;
mod assets;
mod branch_plans;
mod frame;
#[cfg(test)]
mod hostile_strings;
mod href;
mod live_updates;
mod local_server;
mod login;
mod multi_user_request_guard;
mod multi_user_server;
mod page_data_reader;
mod page_elements;
mod page_query;
mod pages;
mod reconciled_object_rows;
mod request_guard;
mod response;
mod route;
mod session_readers;
mod session_refusals;
mod shared_read;
mod shell_line;

pub use self::local_server::LocalWebServer;
pub use self::login::LoginOptions;
pub use self::multi_user_server::MultiUserWebServer;
