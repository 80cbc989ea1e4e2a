#!/bin/busybox sh
# The first program of the virtual machine. Each part prints "=== NAME" and what it found.
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
cd /tmp

# ready FILE waits for a program's first output.
ready() {
	n=0
	while [ ! -s "$1" ] && [ $n -lt 600 ]; do
		usleep 100000
		n=$((n + 1))
	done
}

echo "=== kernel"
uname -rm
sliver version | head -n 1

echo "=== locks"
mkfifo held
/t/deadlock <held >deadlock.out &
pid=$!
exec 3>held
ready deadlock.out
sliver stack --fail-on-deadlock -p $pid
echo "status $?"
exec 3>&-
kill -9 $pid

echo "=== truth"
/t/duty nanosleep 20000 20000 30 >duty.out &
pid=$!
usleep 2000000
sliver record -p $pid -t main -i 50ms -d 20s -o duty.sliver
sliver export duty.sliver --on-cpu -o duty.folded
cat duty.folded
wait $pid
tail -n 1 duty.out

echo "=== signals"
/t/handler >handler.out &
pid=$!
ready handler.out
sliver stack -p $pid
kill -9 $pid

echo "=== end"
sync
poweroff -f
