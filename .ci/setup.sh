#!/usr/bin/env bash
# Installs what this repository needs and this machine lacks; says what and why. Run again, it does nothing.
#
#   .ci/setup.sh host          a C++ compiler and libclang (for RocksDB), OpenSSL and zlib (for Kafka's client library), and a
#                              Rust toolchain that is new enough
#   .ci/setup.sh wasm          Rust's standard library for wasm32-unknown-unknown, and a linker for it
#   .ci/setup.sh lint          rustfmt and clippy
#   .ci/setup.sh kafka         what the tests with a real Kafka need: Java, Kafka, and two readers, kcat and kafka-python
#   .ci/setup.sh schemathesis  what the test of the daemon's requests needs: schemathesis
#   .ci/setup.sh languages     what makes operators of other languages; also each by itself:
#   .ci/setup.sh python        componentize-py, which brings its own Python
#   .ci/setup.sh javascript    Node.js and componentize-js
#   .ci/setup.sh c             clang with the C library for Wasm, and wit-bindgen
#   .ci/setup.sh target-dir    installs nothing; prints the build directory that all scripts share
#   .ci/setup.sh kafka-python  installs nothing; prints the Python that has kafka-python
#   .ci/setup.sh schemathesis-program, componentize-py, componentize-js, wit-bindgen, clang    the same for these programs
#
# Several parts may be named at once.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rust_min=1.95
wasm_target=wasm32-unknown-unknown
kafka_python=3.0.12
# Checksums of record batches in C: reading a million records takes 10 s, not minutes.
crc32c=2.9.post0
schemathesis=4.32.5
componentize_py=0.25.1
componentize_js=0.23.0
jco=1.35.0
node_min=20
clang=19
wit_bindgen=0.60.0

say() { printf 'set-up: %s\n' "$*" >&2; }

fail() {
    printf 'error: %s\n' "$1" >&2
    printf 'help: %s\n' "$2" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# The build directory outlives the checkout, because RocksDB and wasmtime take long to build.
target_dir() {
    printf '%s\n' "${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/lockgate/target}"
}

# apt_install REASON PACKAGE...
apt_install() {
    local reason=$1 as_root=()
    shift
    have apt-get || fail "this needs $* ($reason), and there is no apt-get to install it with" \
        "install the same by your system's own means and run this again"
    if [ "$(id -u)" != 0 ]; then
        have sudo || fail "this needs $* ($reason), and only root may install it" \
            "run as root: apt-get install $*"
        as_root=(sudo)
    fi
    say "installing $* ($reason)"
    "${as_root[@]}" apt-get update -qq >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# version_at_least VERSION MINIMUM
version_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

rustc_version() { "$1" --version | cut -d ' ' -f 2; }

need_rust() {
    local hint="install it from https://rustup.rs: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    if ! have cargo && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
        fail "Rust is installed but not in PATH" "run: . \"${CARGO_HOME:-$HOME/.cargo}/env\""
    fi
    { have cargo && have rustc; } || fail "there is no Rust here" "$hint"
    local version
    version=$(rustc_version rustc) || fail "rustc doesn't run" "$hint"
    version_at_least "$version" "$rust_min" ||
        fail "Rust $version is too old; this needs $rust_min or newer" "run: rustup update stable"
}

# Whether bindgen will find its library. libclang-cpp, which LLVM's own packages bring along, is another one. A test looks elsewhere.
libclang_found() {
    [ -n "${LIBCLANG_PATH:-}" ] && return
    local folders="${LOCKGATE_LIBCLANG_DIRS:-/usr/lib/llvm-*/lib /usr/lib /usr/lib64 /usr/lib/*-linux-gnu}" folder
    for folder in $folders; do
        { compgen -G "$folder/libclang.so*" || compgen -G "$folder/libclang-[0-9]*.so*"; } >/dev/null && return
    done
    return 1
}

setup_host() {
    need_rust
    local missing=()
    have c++ || missing+=(g++)
    libclang_found || missing+=(libclang-dev)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -d /etc/pki ] || missing+=(ca-certificates)
    have make || missing+=(make)
    have pkg-config || missing+=(pkg-config)
    pkg-config --exists libssl 2>/dev/null || missing+=(libssl-dev)
    pkg-config --exists zlib 2>/dev/null || missing+=(zlib1g-dev)
    [ ${#missing[@]} = 0 ] || apt_install "to build RocksDB and librdkafka and fetch crates" "${missing[@]}"
}

setup_lint() {
    need_rust
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    if have rustup; then
        say "adding rustfmt and clippy to the Rust toolchain"
        rustup component add rustfmt clippy >&2 && return
    fi
    [ "$(command -v rustc)" = /usr/bin/rustc ] ||
        fail "cargo fmt or cargo clippy is missing" "run: rustup component add rustfmt clippy"
    apt_install "to check format and lints" rustfmt-web rust-web-clippy
}

# Whether the given rustc can compile for Wasm.
has_wasm_std() {
    local directory
    directory=$(wasm_std_dir "$1" 2>/dev/null) && compgen -G "$directory/libstd-*.rlib" >/dev/null
}

# Where the given rustc looks for the library; a test puts it elsewhere.
wasm_std_dir() {
    local sysroot
    sysroot=$("$1" --print sysroot) || return
    printf '%s\n' "${LOCKGATE_WASM_STD_DIR:-$sysroot/lib/rustlib/$wasm_target/lib}"
}

# `lockgate build` links with rust-lld of the toolchain in PATH, else with lld; see host/src/cli/build.rs.
has_wasm_linker() {
    compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/rust-lld" >/dev/null || have lld
}

setup_wasm() {
    need_rust
    if ! has_wasm_std rustc && ! has_wasm_std /usr/bin/rustc; then
        if ! add_wasm_by_rustup; then
            add_wasm_by_apt
        fi
    fi
    has_wasm_linker || apt_install "to link operators" lld
}

add_wasm_by_rustup() {
    have rustup || return 1
    say "adding the target $wasm_target to the Rust toolchain"
    if RUSTUP_MAX_RETRIES=1 timeout 120 rustup target add "$wasm_target" >/dev/null 2>&1 && has_wasm_std rustc; then
        return
    fi
    say "rustup could not download it; taking the packages of this system instead"
    return 1
}

# Debian has no package with this standard library for its current Rust, but one with the source.
add_wasm_by_apt() {
    local missing=() package
    for package in rustc-web cargo-web rust-web-src; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || apt_install "to compile operators to Wasm" "${missing[@]}"
    local version
    version=$(rustc_version /usr/bin/rustc)
    version_at_least "$version" "$rust_min" ||
        fail "the packages of this system bring Rust $version, too old to compile operators ($rust_min or newer)" \
            "with a network, run: rustup target add $wasm_target"
    build_wasm_std
}

# Builds the standard library from its source and puts it where /usr/bin/rustc looks for it.
build_wasm_std() (
    destination=$(wasm_std_dir /usr/bin/rustc)
    say "building Rust's standard library for Wasm, once (about 3 minutes)"
    crate=$(mktemp -d)
    trap 'rm -rf "$crate"' EXIT
    mkdir "$crate/src"
    : >"$crate/src/lib.rs"
    cat >"$crate/Cargo.toml" <<'MANIFEST'
[package]
name = "std-only"
version = "0.0.0"
edition = "2021"
[workspace]
MANIFEST
    cd "$crate"
    # A library, so nothing is linked. Bitcode lets operators be built with link-time optimisation.
    env RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR="$crate/target" \
        /usr/bin/cargo build --release -Zbuild-std=std,panic_abort --target "$wasm_target" >&2
    rm -f "target/$wasm_target/release/deps/"libstd_only-*
    as_root=()
    mkdir -p "$destination" 2>/dev/null || as_root=(sudo)
    # Complete or not at all: an interrupted copy must not look like an installed library.
    "${as_root[@]}" mkdir -p "$(dirname "$destination")"
    "${as_root[@]}" rm -rf "$destination.partial"
    "${as_root[@]}" mkdir "$destination.partial"
    "${as_root[@]}" cp "target/$wasm_target/release/deps/"*.rlib "$destination.partial/"
    "${as_root[@]}" chmod -R a+rX "$destination.partial"
    "${as_root[@]}" rm -rf "$destination"
    "${as_root[@]}" mv "$destination.partial" "$destination"
    say "installed it in $destination"
)

broker() { "$repository/tests/kafka/broker.sh" "$@"; }

# A Python of its own: kafka-python is not what other programs of this machine should get to see.
kafka_python_dir() { printf '%s\n' "$(dirname "$(realpath -m "$(target_dir)")")/kafka-python-$kafka_python"; }

setup_kafka() {
    local missing=()
    broker java >/dev/null 2>&1 || missing+=(default-jre-headless)
    have mvn || missing+=(maven)
    have kcat || missing+=(kcat)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    [ ${#missing[@]} = 0 ] || apt_install "to run Kafka and to read from it" "${missing[@]}"
    broker java >/dev/null
    [ -x "$(kafka_python_dir)/bin/python3" ] || install_kafka_python
    broker fetch
}

install_kafka_python() (
    destination=$(kafka_python_dir)
    say "installing kafka-python in $destination"
    mkdir -p "$(dirname "$destination")"
    # Complete or not at all, also when two do it at once: beside it first, then renamed.
    partial=$(mktemp -d "$destination.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    python3 -m venv "$partial" >&2
    "$partial/bin/python3" -m pip install -q --disable-pip-version-check \
        "kafka-python==$kafka_python" "crc32c==$crc32c" >&2 ||
        fail "pip could not install kafka-python $kafka_python" "its messages are above"
    chmod 755 "$partial"
    mv -T "$partial" "$destination" 2>/dev/null || [ -x "$destination/bin/python3" ]
)

# As kafka-python, in a Python of its own.
schemathesis_dir() { printf '%s\n' "$(dirname "$(realpath -m "$(target_dir)")")/schemathesis-$schemathesis"; }

setup_schemathesis() {
    python3 -c 'import ensurepip, venv' 2>/dev/null ||
        apt_install "to test the requests that the daemon takes" python3 python3-venv
    [ -x "$(schemathesis_dir)/bin/schemathesis" ] || install_schemathesis
}

install_schemathesis() (
    destination=$(schemathesis_dir)
    say "installing schemathesis in $destination"
    mkdir -p "$(dirname "$destination")"
    # Complete or not at all, also when two do it at once: beside it first, then renamed.
    partial=$(mktemp -d "$destination.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    python3 -m venv "$partial" >&2
    "$partial/bin/python3" -m pip install -q --disable-pip-version-check "schemathesis==$schemathesis" >&2 ||
        fail "pip could not install schemathesis $schemathesis" "its messages are above"
    # A program that pip has made names the folder that it was made in.
    cat >"$partial/bin/schemathesis" <<'PROGRAM'
#!/bin/sh
exec "$(dirname "$0")/python3" -m schemathesis.cli "$@"
PROGRAM
    chmod 755 "$partial" "$partial/bin/schemathesis"
    mv -T "$partial" "$destination" 2>/dev/null || [ -x "$destination/bin/schemathesis" ]
)

# What makes operators of other languages is kept beside the build directory, each tool in a folder of its own.
tools_dir() { dirname "$(realpath -m "$(target_dir)")"; }

# put_tool NAME COMMAND...: runs the command, which fills the folder that it is given, and puts that in its place. Complete or not
# at all, also when two do it at once.
put_tool() (
    destination=$(tools_dir)/$1
    shift
    mkdir -p "$(dirname "$destination")"
    partial=$(mktemp -d "$destination.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    "$@" "$partial"
    chmod 755 "$partial"
    mv -T "$partial" "$destination" 2>/dev/null || [ -d "$destination" ]
)

setup_python() {
    python3 -c 'import ensurepip, venv' 2>/dev/null ||
        apt_install "to make operators of Python" python3 python3-venv
    [ -d "$(tools_dir)/componentize-py-$componentize_py" ] ||
        put_tool "componentize-py-$componentize_py" install_componentize_py
}

install_componentize_py() {
    say "installing componentize-py $componentize_py (20 MB)"
    python3 -m venv "$1" >&2
    "$1/bin/python3" -m pip install -q --disable-pip-version-check "componentize-py==$componentize_py" >&2 ||
        fail "pip could not install componentize-py $componentize_py" "its messages are above"
    # The program that pip made names this folder, which is to be renamed.
    cat >"$1/componentize-py" <<'PROGRAM'
#!/bin/sh
exec "$(dirname "$0")/bin/python3" -c 'import sys; from componentize_py import script; sys.argv[0] = "componentize-py"; sys.exit(script())' "$@"
PROGRAM
    chmod 755 "$1/componentize-py"
}

setup_javascript() {
    { have node && have npm; } || apt_install "to make operators of JavaScript" nodejs npm
    local version
    version=$(node --version | cut -c 2-)
    version_at_least "$version" "$node_min" ||
        fail "Node.js $version is too old; this needs $node_min or newer" "install it from https://nodejs.org"
    [ -d "$(tools_dir)/componentize-js-$componentize_js" ] ||
        put_tool "componentize-js-$componentize_js" install_componentize_js
}

install_componentize_js() {
    say "installing componentize-js $componentize_js (400 MB)"
    npm install --prefix "$1" --no-audit --no-fund --loglevel=error \
        "@bytecodealliance/componentize-js@$componentize_js" "@bytecodealliance/jco@$jco" >&2 ||
        fail "npm could not install componentize-js $componentize_js" "its messages are above"
    cat >"$1/componentize-js" <<'PROGRAM'
#!/bin/sh
exec node "$(dirname "$0")/node_modules/@bytecodealliance/componentize-js/src/cli.js" "$@"
PROGRAM
    chmod 755 "$1/componentize-js"
}

setup_c() {
    local missing=()
    have "clang-$clang" || missing+=("clang-$clang")
    have "wasm-ld-$clang" || missing+=("lld-$clang")
    [ -e /usr/include/wasm32-wasi/stdlib.h ] || missing+=(wasi-libc)
    compgen -G "/usr/lib/llvm-$clang/lib/clang/*/lib/*/libclang_rt.builtins-wasm32.a" >/dev/null ||
        missing+=("libclang-rt-$clang-dev-wasm32")
    [ ${#missing[@]} = 0 ] || apt_install "to make operators of C" "${missing[@]}"
    [ -d "$(tools_dir)/wit-bindgen-$wit_bindgen" ] || put_tool "wit-bindgen-$wit_bindgen" install_wit_bindgen
}

install_wit_bindgen() {
    need_rust
    say "building wit-bindgen $wit_bindgen (about 2 minutes)"
    CARGO_TARGET_DIR="$1/target" cargo install wit-bindgen-cli --version "$wit_bindgen" --locked --debug \
        --no-default-features --features c --root "$1" --quiet >&2 ||
        fail "cargo could not install wit-bindgen-cli $wit_bindgen" "its messages are above"
    rm -rf "$1/target"
    ln -s bin/wit-bindgen "$1/wit-bindgen"
}

parts="host wasm lint kafka schemathesis languages python javascript c target-dir kafka-python schemathesis-program componentize-py componentize-js wit-bindgen clang"

main() {
    [ $# -gt 0 ] || fail "no part named" "name one or more of: $parts"
    local part
    for part in "$@"; do
        case $part in
        host) setup_host ;;
        wasm) setup_wasm ;;
        lint) setup_lint ;;
        kafka) setup_kafka ;;
        schemathesis) setup_schemathesis ;;
        target-dir) target_dir ;;
        languages)
            setup_python
            setup_javascript
            setup_c
            ;;
        python) setup_python ;;
        javascript) setup_javascript ;;
        c) setup_c ;;
        kafka-python) printf '%s\n' "$(kafka_python_dir)/bin/python3" ;;
        schemathesis-program) printf '%s\n' "$(schemathesis_dir)/bin/schemathesis" ;;
        componentize-py) printf '%s\n' "$(tools_dir)/componentize-py-$componentize_py/componentize-py" ;;
        componentize-js) printf '%s\n' "$(tools_dir)/componentize-js-$componentize_js/componentize-js" ;;
        wit-bindgen) printf '%s\n' "$(tools_dir)/wit-bindgen-$wit_bindgen/wit-bindgen" ;;
        clang) printf '%s\n' "clang-$clang" ;;
        *) fail "there is no part '$part'" "name one or more of: $parts" ;;
        esac
    done
}

main "$@"
