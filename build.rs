//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A program that can lie anywhere has 77 000 addresses mended and 3 MiB of its memory written before `main`.
    // docs/decisions/0018-link-address.md says what that is weighed against.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
