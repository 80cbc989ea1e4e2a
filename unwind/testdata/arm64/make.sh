#!/bin/sh
# Makes the programs and dumps that fixture_test.go reads: one that keeps
# frame pointers, one that does not, one that signs return addresses.
set -eu
cd "$(dirname "$0")"
make_one() {
	name=$1
	shift
	aarch64-linux-gnu-gcc -O2 -w -static -nostdlib -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns \
		-Wl,-z,noseparate-code,-z,max-page-size=4096,--build-id=none "$@" -o "$name.elf" fixture.c
	aarch64-linux-gnu-objcopy -R .comment "$name.elf"
	qemu-aarch64 -cpu max "./$name.elf" >"$name.dump"
}
make_one plain
make_one nofp -fomit-frame-pointer
make_one pac -march=armv8.3-a -mbranch-protection=pac-ret+leaf
