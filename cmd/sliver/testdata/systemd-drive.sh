#!/usr/bin/env bash
# Operates the unit below a separate systemd and prints the results, one line
# each: see TestBelowSystemd.
unit=sliver-watch@nobody

# until CONDITION… waits for it.
until_true() {
	for _ in $(seq 300); do
		"$@" && return
		sleep .1
	done
	echo "in vain: $*"
	return 1
}
main() { systemctl show $unit -p MainPID --value; }
booted() { systemctl is-active -q multi-user.target 2>/dev/null; }
says() { journalctl --no-pager -o cat -u $unit | grep -q "$1"; }
lies() { compgen -G "/var/lib/sliver/nobody/spin-*-$1.sliver" >/dev/null; }
another() { [[ $(main) != "$1" && $(main) != 0 ]] && systemctl is-active -q $unit; }

until_true booted
systemctl start systemd-journald myserver
systemctl start $unit && echo "started: $(systemctl is-active $unit), $(systemctl show $unit -p StatusText --value)"
pid=$(main)
grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' "/proc/$pid/status" | tr '\t' ' '
until_true says '"msg":"watching"' && echo "the journal has its log"
systemctl reload $unit && until_true says '"msg":"reloaded"' && echo reloaded
kill -USR2 "$pid"
until_true lies signal && echo dumped
until_true says 'SIGUSR2; kept in' && echo "the journal has the dump"
kill -KILL "$pid"
until_true another "$pid" && echo "restarted"
until_true lies recovered && echo recovered
systemctl stop $unit && echo "stopped: $(systemctl show $unit -p Result --value)"
