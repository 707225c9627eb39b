# Sourced by the scripts that fetch programs for tests: packages of this Debian or Ubuntu are unpacked into a folder, with
# the libraries that are missing. Nothing is installed and no service is started; no right is needed but to write there.
#
# Whoever sources this has `set -euo pipefail`, and a function `say` that tells people.

unpack_once() { # unpack_once FOLDER PACKAGE...: what is there is not fetched again; two at the same time fetch it once
    local folder="$1" work deb start=$SECONDS
    shift
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        say "needs apt-get and dpkg-deb: Debian or Ubuntu"
        return 1
    fi
    mkdir -p "$folder"
    exec 9>"$folder/.lock"
    if command -v flock >/dev/null; then
        flock 9 # the second one finds what the first has made
    fi
    if [ -e "$folder/.done" ]; then return; fi
    work="$(mktemp -d "$folder/.work.XXXXXX")"
    # shellcheck disable=SC2064 # its name now, not then
    trap "rm -rf '$work'" EXIT
    private_apt "$work/apt" update >&2
    private_apt "$work/apt" -y --download-only --reinstall install "$@" >&2
    for deb in "$work"/apt/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$folder"
    done
    touch "$folder/.done" # it counts once it is whole
    say "unpacked $* in $((SECONDS - start)) s"
}

private_apt() { # private_apt FOLDER COMMAND...: apt-get with lists and cache of its own
    local apt="$1"
    shift
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/state"
    apt-get -qq -o Dir::State="$apt/state" -o Dir::State::Lists="$apt/lists" \
        -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$apt/cache" -o APT::Sandbox::User="$(id -un)" \
        -o APT::Install-Recommends=false -o Acquire::Languages=none -o Acquire::Retries=3 -o Debug::NoLocking=1 "$@"
}
