#!/bin/sh
# A worker in plain sh and curl: claims jobs of the type `greet` over HTTP, runs them, and says what became of them.
#   WINDLASS_URL=http://127.0.0.1:8080 WINDLASS_API_KEY=wl_... sh worker.sh
set -u
api="${WINDLASS_URL:-http://127.0.0.1:8080}/api/v1"
# Of this run alone: whoever comes again under an old name is given what that one held.
name="${WORKER_NAME:-sh-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')}"

post() { # path, body
    curl -sS --max-time 60 --retry 5 --retry-connrefused -H 'Content-Type: application/json' \
        ${WINDLASS_API_KEY:+-H "Authorization: Bearer $WINDLASS_API_KEY"} -d "$2" "$api/$1"
}

field() { # name: its first value in the JSON on standard input
    sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

run() { # the job's JSON: the work itself
    who=$(printf %s "$1" | field name)
    [ -n "$who" ] && echo "hello, $who"
}

stop() {
    stopping=yes
}
stopping=no
trap stop TERM INT

number=0
while [ "$stopping" = no ]; do
    # It holds nothing now, and says so: a job whose answer was lost on the way is told of again.
    number=$((number + 1))
    claim="{\"worker\":\"$name\",\"types\":[\"greet\"],\"wait\":\"5s\",\"request\":\"$number\",\"holding\":[]}"
    answer=$(post leases "$claim") || continue
    case "$answer" in
    *'"leases":'*) ;;
    *) # Refused: asking at once again would change nothing.
        echo "$answer" >&2
        sleep 1
        continue
        ;;
    esac
    lease=$(printf %s "$answer" | field lease)
    case "$answer" in *'"drain":true'*) stopping=yes ;; esac
    [ -n "$lease" ] || continue

    # While the job runs: a sign of life every two seconds, which keeps the lease as well.
    (while sleep 2; do post "workers/$name/beat" "{\"leases\":[\"$lease\"]}" >/dev/null; done) &
    heart=$!
    if said=$(run "$answer"); then
        told=$(post "leases/$lease/complete" "{\"result\":\"$said\"}")
        case "$told" in *'"status":400'*) post "leases/$lease/fail" '{"message":"the result is not JSON"}' >/dev/null ;; esac
    else
        post "leases/$lease/fail" '{"message":"nobody to greet","retryable":false}' >/dev/null
    fi
    kill "$heart" 2>/dev/null
    echo "$said"
done
post "workers/$name/beat" '{"stopping":true}' >/dev/null
