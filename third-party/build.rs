//! Nothing to do: only packages with a build script can say which features build scripts get.

fn main() {}
