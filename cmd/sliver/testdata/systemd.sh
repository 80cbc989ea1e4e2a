#!/usr/bin/env bash
# A separate systemd: the first process of its own namespaces, with the units
# in a folder, a private /run, /etc and /var, and control groups below one that is
# created for it. It ends with the driver, a program that runs beside it.
#
#   systemd.sh FOLDER    has units/, etc/ (mounted over /etc), drive; as root. The output
#                        of the driver goes to FOLDER/out, systemd's own log to
#                        standard output. Status 3: not supported here.
set -euo pipefail
dir=$1
if [[ ${2:-} != inside ]]; then
	group=
	for root in /sys/fs/cgroup/unified /sys/fs/cgroup; do
		if [[ -e $root/cgroup.procs && -e $root/cgroup.controllers ]]; then group=$root/sliver-systemd-$$ && break; fi
	done
	[[ $group ]] || { echo "no control groups of the second version" && exit 3; }
	mkdir "$group" || exit 3
	first=
	# Its end is that of all processes in its namespace.
	cleanup() {
		[[ -z $first ]] || kill -KILL "$first" 2>/dev/null || true
		wait || true
		for _ in $(seq 100); do
			find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
			sleep .1
		done
	}
	trap cleanup EXIT
	trap 'exit 1' TERM INT
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		exec unshare --mount --pid --fork --cgroup --uts --mount-proc "$0" "$dir" inside
	) &
	maker=$!
	while kill -0 $maker 2>/dev/null && [[ ! -e $dir/over ]]; do
		[[ $first ]] || first=$(pgrep -P $maker || true)
		sleep .1
	done
	[[ -e $dir/over ]]
	exit
fi
mount --make-rprivate /
mount -t tmpfs tmpfs "$dir/private"
mkdir "$dir"/private/{none,etc,etc-work,var,var-work}
cp -a "$dir/etc/." "$dir/private/etc/"
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/private/etc,workdir=$dir/private/etc-work" overlay /etc
mount -t overlay -o "lowerdir=/var,upperdir=$dir/private/var,workdir=$dir/private/var-work" overlay /var
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind "$dir/private/none" /usr/lib/systemd/system-generators
{
	"$dir/drive" >"$dir/out" 2>&1 || true
	: >"$dir/over"
} &
exec env -i PATH="$PATH" container=sliver SYSTEMD_UNIT_PATH="$dir/units" /lib/systemd/systemd --system --unit=multi-user.target \
	--log-target=console --log-level=info --show-status=0
