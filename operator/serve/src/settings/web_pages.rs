//! The flags of the web pages for users who log in.
//!
//! Elsewhere: the pages and logins (crate `windlass-web`), and the start of the pages (`cli/src/serve/pages.rs`).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::parse_address;

/// Which pages are served, and to whom.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pages")]
pub struct WebPageFlags {
    /// Address on which pages are served, over HTTP, to users who log in: an ingress in front has the certificate
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address,
        requires = "web_url", requires = "web_oidc_issuer_url", requires = "web_oidc_client_id")]
    pub web_addr: Option<SocketAddr>,

    /// Serve pages only: no object is reconciled, no Lease is acquired, and no right is needed but those of the users
    #[arg(long, requires = "web_addr")]
    pub web_only: bool,

    /// Address under which users open the pages, such as https://windlass.example.com; requests to other hosts are refused
    #[arg(long, value_name = "URL")]
    pub web_url: Option<String>,

    /// Issuer of OpenID Connect at which users log in; the API server has to trust it for the same client
    #[arg(long, value_name = "URL")]
    pub web_oidc_issuer_url: Option<String>,

    /// What that issuer calls the client; its redirect URL is that of --web-url with /callback
    #[arg(long, value_name = "ID")]
    pub web_oidc_client_id: Option<String>,

    /// File with the secret of the client; a public client has none
    #[arg(long, value_name = "FILE")]
    pub web_oidc_client_secret_file: Option<PathBuf>,

    /// File with authorities of the issuer's certificate in PEM, which are trusted besides those of the system
    #[arg(long, value_name = "FILE")]
    pub web_oidc_ca_file: Option<PathBuf>,

    /// Scopes to ask for besides `openid`, as a comma-separated list
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "email,groups")]
    pub web_oidc_scopes: Vec<String>,

    /// File with at least 32 random bytes, the same for all replicas, by which cookies of sessions are encrypted. Without it,
    /// sessions end with the process, and there can be one replica only
    #[arg(long, value_name = "FILE")]
    pub web_session_key_file: Option<PathBuf>,

    /// How many users read pages at once; each has watches and rows of their own in memory
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub web_max_users: u16,
}
