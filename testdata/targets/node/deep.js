// deep N: sleeps below N calls of dive().
function dive(n) {
	if (n === 0) {
		console.log("ready " + process.pid);
		for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
	}
	return dive(n - 1) + 1;
}
dive(+process.argv[2]);
