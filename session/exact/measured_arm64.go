package exact

// pushed: on this machine, the kernel treats the first instruction of entered as those of most functions.
const pushed = false
