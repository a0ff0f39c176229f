# What continuous integration does.
ci:
    .ci/run

# The tests that need no network and no service.
test:
    cargo test --workspace

# The long tier: everything in ci, then whatever each crate marks as ignored because it takes minutes.
soak:
    cargo test --workspace --release -- --include-ignored

# Very many random schedules, in parallel processes; goes on where it was stopped. See .ci/soak.
soak-schedules count="1000000":
    .ci/soak {{count}}

# What each command costs in requests, bytes, time and memory; see bench/.
bench:
    cargo build --release -p peat-cli
    cargo run --release -p peat-bench

# What a contributor runs before pushing.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Write the generated page of the manual again.
manual:
    cargo run -q --bin peat -- help --markdown > docs/manual/src/commands.md
