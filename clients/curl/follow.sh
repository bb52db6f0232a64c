#!/usr/bin/env bash
# Keeps a copy of all context entries in a directory of its own, one JSON file for each: a
# snapshot first, then each change. The file `cursor` is the position in the stream, so
# the script can be stopped at any time.
#
#   clients/curl/follow.sh copy [http://127.0.0.1:7420]

set -uo pipefail
copy=${1:?the directory of the copy}
copy=${copy%/}
url=${2:-http://127.0.0.1:7420}/v1/watch?snapshot=true\&entity=context\&include_body=true

# A snapshot replaces the whole directory. Until it is complete, it is in a second one.
for directory in "$copy" "$copy.new"; do
    if [[ -n $(find "$directory" -mindepth 1 ! -regex '.*/[0-9][0-9]*\.json' ! -name cursor -print -quit 2>/dev/null) ]]; then
        echo "$directory has files that are no part of a copy; name another directory" >&2
        exit 1
    fi
done

# apply EVENT CURSOR DATA : applies one event to the directory $into.
apply() {
    # The pattern relies on the id coming before the entry, which contains braces.
    if [[ $1 =~ ^(entry|change|left)$ && $3 =~ ^\{[^{}]*\"id\":\"([0-9]+)\" ]]; then
        local file=$into/${BASH_REMATCH[1]}.json
        if [[ $1 != left && $3 == *'"context":{'* ]]; then printf '%s\n' "$3" >"$file"; else rm -f "$file"; fi
    elif [[ $1 == resync && $3 =~ RESYNC_REQUIRED|CURSOR_COMPACTED ]]; then
        rm -f "$copy/cursor"
    fi
    [[ -z $2 ]] || printf '%s' "$2" >"$into/cursor"
    if [[ $1 == snapshot_end && $into != "$copy" ]]; then
        rm -rf "$copy"
        mv "$into" "$copy"
        into=$copy
    fi
}

# The key is not an argument of curl, because every user of the machine can read those.
credentials() {
    [[ -z ${CONTEXT_API_KEY:-} ]] || printf 'header = "Authorization: Bearer %s"\n' "$CONTEXT_API_KEY"
}

while true; do
    into=$copy
    arguments=(--silent --no-buffer --speed-limit 1 --speed-time 30 --write-out '\nstatus: %{http_code}\n')
    if [[ -s $copy/cursor ]]; then
        arguments+=(--header "Last-Event-ID: $(<"$copy/cursor")")
    else
        into=$copy.new
        rm -rf "$into"
        mkdir -p "$into"
    fi
    event='' cursor='' data='' status=000
    while IFS= read -r line; do
        case $line in
        'event: '*) event=${line#*: } cursor='' data='' ;;
        'id: '*) cursor=${line#*: } ;;
        'data: '*) data=${line#*: } ;;
        'status: '*) status=${line#*: } ;;
        '') [[ -z $data ]] || apply "$event" "$cursor" "$data"; data='' ;;
        esac
    done < <(credentials | curl --config - "${arguments[@]}" "$url")
    case $status in
    410) rm -f "$copy/cursor" ;;
    4*) [[ $status == 429 ]] || { echo "refused with status $status" >&2; exit 1; } ;;
    esac
    sleep 1
done
