package exact

// pushed says that the kernel carries out the first instruction of entered itself, as those where calls.Code is Cheap, and
// single-steps the others.
const pushed = true
