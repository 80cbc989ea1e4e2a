#!/usr/bin/env bash
# Measures the cost of watching a busy server: load generators run in pairs, with and
# without 'sliver watch', alternately so that both see the same machine. Prints the
# median of each, the ratio of the medians, the median of the pairs' ratios,
# sliver's CPU share and memory, and how many of the default triggers
# fired: on a healthy server, none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
	cat <<'EOF'
usage: bench/watch.sh [PAIRS [SECONDS [SERVER…]]]
       bench/watch.sh --toggle [PAIRS [SERVER…]]

  --toggle keeps one load and one recorder, and holds the recorder (SIGSTOP) in one half
  of each pair, for a quarter of a second (bench/toggle): where pairs of seconds scatter by
  more than what is to be measured. PAIRS is 200 then.
  PAIRS    how many (5)
  SECONDS  of load in each half of a pair (4)
  SERVER   redis (redis-benchmark), nginx (wrk), postgres (pgbench, 16 clients),
           threads (64 threads that take turns with requests, and want more than
           two CPUs), resting (64 threads that want a fifth of one); default: those
           whose tools are here

environment:
  SETTLE   seconds from the start of the recorder to the load (12): in them it finds
           the interval at which it stays below --max-cpu
EOF
}
[[ ${1:-} != -h && ${1:-} != --help ]] || {
	usage
	exit 0
}
toggle=
[[ ${1:-} != --toggle ]] || {
	toggle=1
	shift
}
pairs=${1:-${toggle:+200}} seconds=${2:-4} settle=${SETTLE:-12}
pairs=${pairs:-5}
if [[ $toggle ]]; then
	seconds=3600
	shift $(($# < 1 ? $# : 1))
else
	shift $(($# < 2 ? $# : 2))
fi
work=$(mktemp -d)
pids=()
cleanup() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
go build -o "$work/sliver" ./cmd/sliver
[[ -z $toggle ]] || go build -o "$work/toggle" ./bench/toggle
export XDG_RUNTIME_DIR=$work/run
mkdir "$work/dumps" "$work/run"

# until_tcp PORT waits until something listens.
until_tcp() {
	for _ in $(seq 100); do
		(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep .1
	done
	echo "nothing listens on port $1" >&2
	return 1
}

start_redis() {
	redis-server --port 7399 --save '' --appendonly no --dir "$work" >/dev/null &
	server=$! pids+=($!) watched=(-p "$server")
	until_tcp 7399
}
drive_redis() { exec timeout "$seconds" redis-benchmark -p 7399 -t get -n 1000000000 -c 32 -P 4 --csv; }
load_redis() { # requests in the time
	drive_redis >/dev/null 2>&1 &
	local l=$! a b
	sleep .3
	a=$(redis-cli -p 7399 info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p')
	sleep $((seconds - 1))
	b=$(redis-cli -p 7399 info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p')
	wait $l || true
	echo $(((b - a) / (seconds - 1)))
}

start_nginx() {
	cat >"$work/nginx.conf" <<EOF
worker_processes 2;
pid $work/nginx.pid;
error_log $work/nginx.log;
daemon off;
events { worker_connections 1024; }
http { access_log off; server { listen 127.0.0.1:7398; location / { return 200 'hello'; } location /status { stub_status; } } }
EOF
	/usr/sbin/nginx -c "$work/nginx.conf" &
	server=$! pids+=($!) watched=(--name nginx)
	until_tcp 7398
}
drive_nginx() { exec wrk -t 2 -c 32 -d "$seconds" http://127.0.0.1:7398/; }
load_nginx() { (drive_nginx) | sed -n 's/^Requests.sec: *\([0-9]*\).*/\1/p'; }

start_postgres() {
	local bin
	bin=$(echo /usr/lib/postgresql/*/bin)
	mkdir "$work/pg" "$work/pgsock"
	chown -R postgres "$work/pg" "$work/pgsock" 2>/dev/null || true
	chmod 755 "$work"
	as_pg() { if [[ $(id -u) == 0 ]]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi; }
	as_pg "$bin/initdb" -D "$work/pg" -A trust -U bench >/dev/null
	as_pg "$bin/postgres" -D "$work/pg" -k "$work/pgsock" -p 7397 -c listen_addresses=127.0.0.1 -c fsync=off >/dev/null 2>&1 &
	server=$! pids+=($!) watched=(--name postgres)
	until_tcp 7397
	"$bin/pgbench" -h 127.0.0.1 -p 7397 -U bench -i -q postgres >/dev/null 2>&1
	"$bin/pgbench" -h 127.0.0.1 -p 7397 -U bench -S -c 16 -j 2 -P 1 -T 100000 postgres >/dev/null 2>"$work/pgbench.out" &
	pids+=($!)
	sleep 3
}
load_postgres() { # its clients stay: each is a process to be watched
	sleep "$seconds"
	tail -n "$((seconds - 1))" "$work/pgbench.out" | awk '$1 == "progress:" {sum += $4; n++} END {print n ? sum / n : 0}'
}

start_threads() { # µs of rest between two requests
	gcc -O2 -g -pthread -Itestdata/targets/include -o "$work/requests" testdata/targets/c/requests.c
	"$work/requests" 64 "${1:-100}" >"$work/requests.out" &
	server=$! pids+=($!) watched=(-p "$server")
	sleep .5
}
load_threads() { # it prints how many requests it has served, every 100 ms
	local a b
	a=$(tail -n 1 "$work/requests.out")
	sleep "$seconds"
	b=$(tail -n 1 "$work/requests.out")
	echo $(((b - a) / seconds))
}

start_resting() { start_threads 12600; }
load_resting() { load_threads; }

median() { sort -n | awk '{v[NR]=$1} END {if (NR) print (NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2)}'; }
ticks() { awk '{print $14+$15}' "/proc/$1/stat"; }

run() {
	local name=$1 with without w cpu0 cpu1 t0 t1
	: >"$work/with" && : >"$work/without" && : >"$work/ratio" && : >"$work/cpu" && : >"$work/rss" && : >"$work/log"
	"start_$name"
	for _ in $(seq "$pairs"); do
		without=$("load_$name")
		"$work/sliver" watch "${watched[@]}" --dir "$work/dumps" --recorder bench 2>>"$work/log" &
		w=$! pids+=($!)
		sleep "$settle"
		cpu0=$(ticks $w) t0=$(date +%s%N)
		with=$("load_$name")
		cpu1=$(ticks $w) t1=$(date +%s%N)
		awk -v c=$((cpu1 - cpu0)) -v t=$((t1 - t0)) 'BEGIN {print c * 1e7 / t * 100}' >>"$work/cpu"
		sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$w/status" >>"$work/rss"
		kill -TERM $w && wait $w || true
		echo "$with" >>"$work/with"
		echo "$without" >>"$work/without"
		awk -v a="$with" -v b="$without" 'BEGIN {print a / b}' >>"$work/ratio"
	done
	printf '%-9s without %9d/s  with %9d/s  of medians %.4f  of pairs %.4f  sliver %.1f %% of a CPU, %d MB, %d triggers\n' "$name" \
		"$(median <"$work/without" | cut -d. -f1)" "$(median <"$work/with" | cut -d. -f1)" \
		"$(awk -v a="$(median <"$work/with")" -v b="$(median <"$work/without")" 'BEGIN {print a / b}')" \
		"$(median <"$work/ratio")" "$(median <"$work/cpu")" $(($(median <"$work/rss" | cut -d. -f1) / 1000)) \
		"$(grep -c msg=trigger "$work/log" || true)"
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null || true
}

# toggled runs one load for all pairs. It sets the recorder to the interval that it would
# have if it were never suspended, as its usage in half of the time is misleading.
toggled() {
	local name=$1 w every targets count load=
	"start_$name"
	targets=$server
	case $name in
	redis) count=redis:127.0.0.1:7399 ;;
	nginx) count=nginx:http://127.0.0.1:7398/status targets=$(pgrep -d, -x nginx) ;;
	postgres) count=segments:7397 targets=$(pgrep -d, -x postgres) ;;
	*) count=lines:$work/requests.out ;;
	esac
	if declare -F "drive_$name" >/dev/null; then
		"drive_$name" >/dev/null 2>&1 &
		load=$! pids+=($!)
	fi
	"$work/sliver" watch "${watched[@]}" --dir "$work/dumps" --recorder bench 2>"$work/log" &
	w=$! pids+=($!)
	sleep "$settle"
	every=$("$work/sliver" ls --json | sed -n 's/.*"interval": "\(.*\)".*/\1/p')
	kill -TERM $w && wait $w || true
	"$work/sliver" watch "${watched[@]}" --dir "$work/dumps" --recorder bench -i "$every" --max-cpu 0 2>"$work/log" &
	w=$! pids+=($!)
	sleep 4
	printf '%-9s each %s  ' "$name" "$every"
	"$work/toggle" -pid $w -targets "$targets" -count "$count" -pairs "$pairs"
	kill -TERM $w && wait $w || true
	kill $load "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
}

servers=("$@")
if ((${#servers[@]} == 0)); then
	servers=(threads resting)
	! command -v redis-benchmark >/dev/null || servers+=(redis)
	! { command -v wrk && [[ -x /usr/sbin/nginx ]]; } >/dev/null || servers+=(nginx)
	! compgen -G '/usr/lib/postgresql/*/bin/pgbench' >/dev/null || servers+=(postgres)
fi
for s in "${servers[@]}"; do
	if [[ $toggle ]]; then toggled "$s"; else run "$s"; fi
done
