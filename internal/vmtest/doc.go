// Package vmtest runs sliver on kernels of Debian in an arm64 and an amd64 machine that QEMU emulates, or runs by KVM
// where that works. It contains only tests. They build an image of sliver, programs to sample, Python and BusyBox,
// boot it with the kernel from Debian's package, and check the output of a script in it.
//
//	SLIVER_LONG=1 go test ./internal/vmtest -v
package vmtest
