#!/bin/sh
# Put and get messages over HTTP, with curl alone: a broker and its gateway, as long as this runs.
#
#     pip install 'quoth[web]'
#     sh http.sh
#
# It prints each command with its answer, checks the answer, and removes everything. The exit status is 0 if all
# answers were right. `quoth help gateway` has more: groups, tokens, WebSockets, a proxy with TLS in front.
set -eu

folder=$(mktemp -d)
broker= web= follower=
trap 'kill $follower $web $broker 2> /dev/null || true; wait; rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# Prints the rest of a line behind a text, as soon as a file has such a line.
await() {
    for _ in $(seq 300); do
        sed -n "s|^$1||p" "$2" | grep . && return
        sleep 0.1
    done
    echo "no '$1':" >&2
    cat "$2" >&2
    return 1
}

# Executes a command after it was printed, and keeps its output in $said.
run() {
    said=$(eval "$1")
    printf '$ %s\n%s\n\n' "$1" "$said"
}

# Fails unless $said matches a pattern.
expect() {
    case $said in
    $1) ;;
    *) echo "this is not $1" >&2 && exit 1 ;;
    esac
}

# Prints a number of the object in $said.
number() { printf '%s' "$said" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

for command in quoth curl; do
    command -v "$command" > /dev/null || { echo "http.sh needs $command" >&2 && exit 2; }
done
# Below the ports that the system gives to connections: one of them could take it while the broker is away.
port=$((32000 + $$ % 384 * 2))
quoth serve --dir "$folder/data" --port "$port" 2> "$folder/broker.log" &
broker=$!
url=$(await 'quothd: ready ' "$folder/broker.log")
quoth web --url "$url" --port 0 2> "$folder/web.log" &
web=$!
api=$(await 'quoth-web: ready ' "$folder/web.log")/api/v1
echo "api=$api"

echo '
# Put a message. The answer has its pointer. With an Idempotency-Key the same put can be sent again, as after an
# answer that was lost: the message is stored once.'
run 'curl -sS "$api/topics/orders" -H "Idempotency-Key: shop/1" -d "a pound of tea"'
expect '*"duplicate":false*'
tea=$(number first)
run 'curl -sS "$api/topics/orders" -H "Idempotency-Key: shop/1" -d "a pound of tea"'
expect "*\"first\":$tea,*\"duplicate\":true*"

echo "# Get it by its pointer, tea=$tea, or with all others of a range."
run 'curl -sS "$api/topics/orders/records/$tea" -H "Accept: application/octet-stream"'
expect 'a pound of tea'
run 'curl -sS "$api/topics/orders/records?since=-15m"'
expect "*\"pointer\":$tea,*\"value\":\"a pound of tea\"*"

echo '# A message can be any file, and have a key and headers.'
head -c 100000 /dev/urandom > "$folder/noise"
run 'curl -sS "$api/topics/files" -H "Quoth-Key: noise" -H "Quoth-Header-Kind: random" --data-binary "@$folder/noise"'
noise=$(number first)
run 'curl -sS "$api/topics/files/records/$noise" -H "Accept: application/octet-stream" | cmp - "$folder/noise" && echo same'
expect same

echo '# Long poll: the answer comes with the first message behind a pointer, half a second later here.'
(sleep 0.5 && curl -sS "$api/topics/orders" -d 'a pound of sugar' > /dev/null) &
run 'curl -sS "$api/topics/orders/records?after=$tea&wait=30s" -H "Accept: text/plain"'
expect 'a pound of sugar'

echo '# Follow: the messages behind a pointer as events, for as long as the connection lasts.
$ curl -sSN "$api/topics/orders/records?after=$tea" -H "Accept: text/event-stream" &'
curl -sSN "$api/topics/orders/records?after=$tea" -H "Accept: text/event-stream" > "$folder/events" &
follower=$!
said=$(await 'data: ' "$folder/events")
printf 'data: %s\n\n' "$said"
expect '*"value":"a pound of sugar"*'

echo '# Kill the broker and start it again: a put that comes meanwhile waits, and nothing is gone.
$ kill -9 $broker; ...'
kill -9 "$broker"
(sleep 0.5 && exec quoth serve --dir "$folder/data" --port "$port" 2> "$folder/broker.log") &
broker=$!
run 'curl -sS "$api/topics/orders" -d "a pound of salt"'
expect '*"count":1*'
run 'curl -sS "$api/topics/orders/records" -H "Accept: text/plain"'
expect 'a pound of tea
a pound of sugar
a pound of salt'
