// Package vmtest runs sliver on a kernel of Debian in an arm64 machine that QEMU emulates. It contains only
// tests. They build an image of sliver, programs to sample, Python and BusyBox, boot it with the kernel from Debian's
// package, and check the output of a script in it.
//
//	SLIVER_LONG=1 go test ./internal/vmtest -v
package vmtest
