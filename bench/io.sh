#!/usr/bin/env bash
# Measures what watching I/O adds to a system call: without a tool and with one in turn,
# so that both see the same machine. Prints the medians of the differences of CPU time a
# call, in ns, also for calls that no tool watches and for another process, and the median
# of the time on the clock, which counts how long a tracer holds the thread.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

usage() {
	cat <<'END'
usage: bench/io.sh [TURNS [WINDOW_MS [TOOL…]]]

  TURNS      how many (5)
  WINDOW_MS  of each measurement (500)
  TOOL       exit, both (empty programs at the end, or at begin and end of each call: the
             kernel's own part), times (the least programs that know how long calls take),
             sums (sliver io), record (sliver record --io), strace (strace -f -c),
             perf (perf trace -s), bpftrace (a count and a histogram of each call);
             default: those that are here
END
}
[[ ${1:-} != -h && ${1:-} != --help ]] || {
	usage
	exit 0
}
turns=${1:-5} window=${2:-500}
shift $(($# < 2 ? $# : 2))
tools=("$@")
if [[ ${#tools[@]} == 0 ]]; then
	tools=(exit both times sums record)
	for t in strace perf bpftrace; do ! command -v "$t" >/dev/null || tools+=("$t"); done
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
go build -o "$work/floor" ./bench/iocost/floor
gcc -O2 -o "$work/cost" bench/iocost/cost.c
head -c 4096 /dev/zero >"$work/file"

# The process that is watched, and another one.
coproc ONE { exec "$work/cost" "$work/file" "$window"; }
exec {in1}>&"${ONE[1]}" {out1}<&"${ONE[0]}"
one=$ONE_PID
read -r _ one <&"$out1"
pids+=("$one")
mkfifo "$work/in" "$work/out"
"$work/cost" "$work/file" "$window" <"$work/in" >"$work/out" &
pids+=("$!")
exec {in2}>"$work/in" {out2}<"$work/out"
read -r _ _ <&"$out2"

# traced runs a command that sees the kernel's trace points, where no tracefs is mounted in a mount
# namespace of its own.
traced() {
	[[ -d /sys/kernel/tracing/events ]] && exec "$@"
	exec unshare -m sh -c 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"' sh "$@"
}
start() {
	case $1 in
	exit | enter | both) "$work/floor" "$1" >"$work/tool.out" 2>&1 & ;;
	times) "$work/floor" times "$one" >"$work/tool.out" 2>&1 & ;;
	sums) "$work/sliver" io -p "$one" --json >"$work/tool.out" 2>&1 & ;;
	record) "$work/sliver" record -p "$one" -i 1s --io -q -o "$work/x.sliver" >"$work/tool.out" 2>&1 & ;;
	strace) strace -f -c -p "$one" -o "$work/tool.out" 2>/dev/null & ;;
	perf) perf trace -s -p "$one" -o "$work/tool.out" 2>/dev/null & ;;
	bpftrace) traced bpftrace -e "tracepoint:raw_syscalls:sys_enter /pid == $one/ { @s[tid] = nsecs; } tracepoint:raw_syscalls:sys_exit /@s[tid]/ { @n[args->id] = count(); @h[args->id] = hist(nsecs - @s[tid]); delete(@s[tid]); }" >"$work/tool.out" 2>&1 & ;;
	*)
		echo "io.sh: unknown tool $1" >&2
		return 2
		;;
	esac
	tool=$!
	sleep 3 # a tool says in its own way, or not at all, when it has begun
	kill -0 "$tool" 2>/dev/null || {
		echo "io.sh: $1 ended: $(tail -n 3 "$work/tool.out")" >&2
		return 1
	}
}
stop() {
	kill -INT "$tool" 2>/dev/null || true
	wait "$tool" 2>/dev/null || true
	rm -f "$work/x.sliver"
}
# measure LABEL appends a line: LABEL read open none other-process elapsed
measure() {
	echo >&"$in1"
	read -r _ r _ o _ n _ e <&"$out1"
	echo >&"$in2"
	read -r _ _ _ _ _ x _ _ <&"$out2"
	echo "$1 $r $o $n $x $e" >>"$work/lines"
}
printf '%-10s %9s %9s %9s %9s %9s %9s %9s\n' tool read +read times +open +none +others elapsed
for t in "${tools[@]}"; do
	: >"$work/lines"
	for ((i = 0; i < turns; i++)); do
		measure without
		start "$t" || break
		measure with
		stop
	done
	awk -v tool="$t" "$(<bench/median.awk)"'
		$1 == "without" { for (k = 2; k <= 6; k++) was[k] = $k }
		$1 == "with" { n++; base[n] = was[2]; for (k = 2; k <= 5; k++) d[k, n] = $k - was[k]; d[6, n] = $6 }
		END {
			if (!n) exit
			for (k = 2; k <= 6; k++) { for (i = 1; i <= n; i++) a[i] = d[k, i]; m[k] = median(a, n) }
			b = median(base, n)
			printf "%-10s %9.0f %9.0f %9.1f %9.0f %9.0f %9.0f %9.0f\n", tool, b, m[2], (b + m[2]) / b, m[3], m[4], m[5], m[6]
		}' "$work/lines"
done
