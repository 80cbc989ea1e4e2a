#!/bin/busybox sh
# The first program of the virtual machine. Each part prints "=== NAME" and what it found.
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
ip link set lo up
cd /tmp

# stop PID ends a program. Without the wait, its SIGCHLD can end the open(2) of a FIFO with EINTR later.
stop() {
	kill -9 "$1"
	wait "$1"
}

# ready FILE waits for a program's first output.
ready() {
	n=0
	while [ ! -s "$1" ] && [ $n -lt 600 ]; do
		usleep 100000
		n=$((n + 1))
	done
}

echo # ends the line of the firmware's control codes
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
stop $pid

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
stop $pid

echo "=== python"
/usr/bin/python3.11 -S -c '
import os
def leaf():
    print("ready", flush=True)
    while True:
        pass
def handle():
    leaf()
handle()
' >python.out &
pid=$!
ready python.out
sliver stack -p $pid
stop $pid

echo "=== go"
/t/waits >go.out &
pid=$!
ready go.out
usleep 1000000
sliver stack --goroutines $pid
sliver record -p $pid -d 3s -i 20ms -o go.sliver
sliver sql go.sliver "select 'task', name, state, reason from task_spans join tasks on id = task group by 2, 3, 4"
stop $pid

echo "=== calls"
mkfifo go_on
/t/calls 100000 1500 <go_on >calls.out &
pid=$!
exec 3>go_on
ready calls.out
usleep 1000000
sliver record -p $pid --stop always -i 50ms -d 5s -o calls.sliver
sliver sql calls.sliver "select 'how', how, sum(count) from samples group by 2"
exec 3>&-
wait $pid
cat calls.out

echo "=== kill"
/t/duty nanosleep 20000 20000 600 >/dev/null &
pid=$!
for i in 1 2 3; do
	sliver record -p $pid --stop always -i 5ms -o killed.sliver 2>killed.err &
	recorder=$!
	usleep 3000000
	stop $recorder
	usleep 1000000
	for task in /proc/$pid/task/*; do
		echo "after $i: $(grep State $task/status) $(grep TracerPid $task/status)"
	done
	before=$(cut -d' ' -f1 /proc/$pid/schedstat)
	usleep 1000000
	[ "$(cut -d' ' -f1 /proc/$pid/schedstat)" -gt "$before" ] && echo "runs $i"
	rm -f killed.sliver*
done
stop $pid

echo "=== end"
sync
poweroff -f
