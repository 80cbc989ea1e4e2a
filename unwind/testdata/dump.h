// Dumps this process as a walk needs it: the registers at a breakpoint
// instruction, the stack, the mappings, code without a file. The format is
// text, with raw bytes behind the lines "stack ADDR LEN" and "code ADDR LEN";
// walk_test.go reads it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, noipa))
#if defined(__aarch64__)
#define BREAK() __asm__ volatile("brk #0" ::: "memory")
#else
#define BREAK() __asm__ volatile("int3" ::: "memory")
#endif
// Keeps a call from becoming a jump, and its result from being dropped.
#define AFTER(x) __asm__ volatile("" : "+r"(x) :: "memory")

static const char *dump_path;
static char dump_alt[1 << 16];

static void dump_bytes(int fd, const char *what, unsigned long lo, unsigned long hi) {
	dprintf(fd, "%s %lx %lx\n", what, lo, hi - lo);
	while (lo < hi) {
		long n = write(fd, (void *)lo, hi - lo);
		if (n <= 0) _exit(3);
		lo += n;
	}
	dprintf(fd, "\n");
}

static void dump_handler(int sig, siginfo_t *si, void *arg) {
	(void)sig; (void)si;
	ucontext_t *uc = arg;
	int fd = open(dump_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (fd < 0) _exit(4);
	unsigned long sp;
#if defined(__aarch64__)
	mcontext_t *m = &uc->uc_mcontext;
	sp = m->sp;
	for (int i = 0; i < 31; i++) dprintf(fd, "reg %d %llx\n", i, (unsigned long long)m->regs[i]);
	dprintf(fd, "reg 31 %lx\npc %llx\n", sp, (unsigned long long)m->pc);
#else
	static const int order[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
		REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	sp = uc->uc_mcontext.gregs[REG_RSP];
	for (int i = 0; i < 16; i++) dprintf(fd, "reg %d %lx\n", i, (unsigned long)uc->uc_mcontext.gregs[order[i]]);
	// int3 is behind PC: show PC at it.
	dprintf(fd, "pc %lx\n", (unsigned long)uc->uc_mcontext.gregs[REG_RIP] - 1);
#endif
	FILE *f = fopen("/proc/self/maps", "r");
	char line[4096];
	unsigned long lo, hi, end = 0, alt_lo = 0, alt_hi = 0;
	while (f && fgets(line, sizeof line, f)) {
		dprintf(fd, "map %s", line);
		if (sscanf(line, "%lx-%lx", &lo, &hi) == 2) {
			if (sp >= lo && sp < hi) end = hi;
			// Code without a file: the vDSO, an emulator's trampolines.
			char perm[8];
			unsigned long inode = 1;
			if (sscanf(line, "%*x-%*x %7s %*x %*s %lu", perm, &inode) == 2 && !inode && hi - lo <= 65536 && hi < 1ul << 63 &&
			    perm[0] == 'r' && perm[2] == 'x') {
				dump_bytes(fd, "code", lo, hi);
			}
			// The main stack too, where this is another one.
			if (strstr(line, "[stack]") && !(sp >= lo && sp < hi)) alt_hi = hi;
		}
	}
	if (alt_hi) {
		extern unsigned long main_sp;
		alt_lo = main_sp - 4096;
		dump_bytes(fd, "stack", alt_lo, alt_hi);
	}
	if (end) dump_bytes(fd, "stack", sp - 128, end);
	dprintf(fd, "end\n");
	close(fd);
	_exit(0);
}

unsigned long main_sp;

static void dump_init(const char *path) {
	dump_path = path;
	main_sp = (unsigned long)__builtin_frame_address(0);
	stack_t ss = {.ss_sp = dump_alt, .ss_size = sizeof dump_alt};
	sigaltstack(&ss, 0);
	struct sigaction sa = {.sa_sigaction = dump_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGTRAP, &sa, 0);
}
