# What the scripts that build a release have in common; sourced by them after environment.sh and installed.sh. They set
# `folder`, for what they build, `dirty`, which is empty unless --allow-dirty was typed, and `usage`.

# check_tree: what is built is a commit, which says the time of all files.
check_tree() {
    local changed
    changed="$(git -C "$root" status --porcelain 2>/dev/null)" || changed="?? ."
    changed="${changed%%$'\n'*}"
    if [ -n "$changed" ] && [ -z "$dirty" ]; then
        stop "not all of $root is committed: ${changed:3} ...; commit it, or type: tools/${0##*/} --allow-dirty"
    fi
    export SOURCE_DATE_EPOCH
    SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 1580601600)}"
}

check_folder() {
    [ -n "$folder" ] || stop "an empty name is no folder; type: $usage"
    { mkdir -p -- "$folder" && [ -w "$folder" ]; } 2>/dev/null || stop "$folder: cannot write there; name another folder"
    folder="$(CDPATH='' cd -- "$folder" && pwd)"
}

# logged COMMAND...: shows the output only if it fails.
logged() { "$@" >"$work/log" 2>&1 || stop "$(tail -n 40 "$work/log")"$'\n'"this failed: $*"; }
