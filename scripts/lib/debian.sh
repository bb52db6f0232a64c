# Debian's packages, unpacked into .cache/ and not installed. Sourced after common.sh.
#
#   debian_lists HOME SUITE           reads the package lists of that Debian into HOME
#   debian_fetch HOME PACKAGE...      downloads these packages, without what they depend on, into HOME/root
#   debian_unpack HOME SUITE PACKAGE...   both of the above
#   apt_of HOME PROGRAM ARGUMENT...   runs apt with the lists of HOME
#   debian_rootfs SUITE ARCHIVE       writes a root file system as a tar archive; needs root

DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# Prints the mirror that this machine uses.
debian_mirror() {
    [[ -f $DEBIAN_KEYRING ]] && command -v dpkg-deb >/dev/null || return
    apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/*$'
}

# With separate package lists, so that the machine's lists do not change.
apt_of() {
    local home=$1 program=$2
    shift 2
    "$program" -qq -o Dir::Etc::SourceList="$home/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State="$home/state" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$home/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}

debian_lists() {
    local home=$1 suite=$2 mirror
    mirror=$(debian_mirror) || return
    rm -rf "$home"
    mkdir -p "$home"/{state/lists/partial,cache/archives/partial,root}
    printf 'deb [signed-by=%s] %s %s main\n' "$DEBIAN_KEYRING" "$mirror" "$suite" >"$home/sources.list"
    apt_of "$home" apt-get update
}

debian_fetch() {
    local home=$1 package
    shift
    (cd "$home" && apt_of "$home" apt-get download "$@") || return
    for package in "$home"/*.deb; do
        dpkg-deb -x "$package" "$home/root" || return
    done
    rm -rf "$home"/{*.deb,state,cache}
}

debian_unpack() {
    debian_lists "$1" "$2" && debian_fetch "$1" "${@:3}"
}

debian_rootfs() {
    local suite=$1 archive=$2 home=$CACHE/mmdebstrap mirror
    mirror=$(debian_mirror) || return
    once mmdebstrap "$suite" debian_unpack "$home" "$suite" mmdebstrap || return
    mkdir -p "$(dirname "$archive")"
    # Without manuals and translations, like the small container image of Debian.
    PATH=$home/root/usr/bin:$PATH mmdebstrap --quiet --mode=root --variant=minbase --format=tar \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$suite" "$archive.part" "deb [signed-by=$DEBIAN_KEYRING] $mirror $suite main" </dev/null || return
    mv "$archive.part" "$archive"
}
