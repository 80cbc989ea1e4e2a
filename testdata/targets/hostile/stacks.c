// Threads whose stacks lead their reader astray, one of each kind, beside one that computes
// honestly (stacks_honest). Option: --wait-go.
//
// circle: frame pointers that form a ring of valid return addresses
// astray: a stack pointer without memory
// device: a stack pointer into memory that has no pages, at the end of a file
// forever: unwind information whose expression never ends
// chained: unwind information that follows memory in a ring
// deep: a recursion of a million calls
// shifting: a stack that other code rewrites all the while
#include "prog.h"

#include <fcntl.h>
#include <sys/mman.h>

FRAME void stacks_honest(void) { prog_spin(prog_now() + 3600 * 1000000000ull); }

#define WAIT_FOREVER "1: pause\n jmp 1b\n"

// A ring of two frames: each says that it was called from the other.
__asm__(".text\n.type circle, @function\ncircle:\n"
        " lea -64(%rsp), %rbp\n lea 2f(%rip), %rax\n"
        " lea -32(%rsp), %rcx\n"
        " mov %rcx, (%rbp)\n mov %rax, 8(%rbp)\n"
        " mov %rbp, (%rcx)\n mov %rax, 8(%rcx)\n"
        " mov %rbp, %rsp\n"
        "2: " WAIT_FOREVER ".size circle, .-circle\n");

__asm__(".text\n.type astray, @function\nastray:\n.cfi_startproc\n"
        " mov $0x1000, %rsp\n xor %ebp, %ebp\n" WAIT_FOREVER ".cfi_endproc\n.size astray, .-astray\n");

__asm__(".text\n.type device, @function\ndevice:\n.cfi_startproc\n"
        " mov %rdi, %rsp\n mov %rdi, %rbp\n" WAIT_FOREVER ".cfi_endproc\n.size device, .-device\n");

// DW_CFA_def_cfa_expression of three bytes: DW_OP_skip by minus three.
__asm__(".text\n.type forever, @function\nforever:\n.cfi_startproc\n .cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff\n"
        WAIT_FOREVER ".cfi_endproc\n.size forever, .-forever\n");

// The CFA is rbp, the return address is this code itself, rbp stays: each caller is the same frame
// but for its CFA, which the expression takes from a ring of two words.
// DW_CFA_def_cfa_expression: DW_OP_breg6 0, DW_OP_deref; rbp is restored from the CFA.
__asm__(".text\n.type chained, @function\nchained:\n.cfi_startproc\n"
        " .cfi_escape 0x0f, 3, 0x76, 0, 0x06\n .cfi_offset %rip, 8\n .cfi_offset %rbp, 0\n"
        " lea -64(%rsp), %rbp\n lea -32(%rsp), %rcx\n lea 3f(%rip), %rax\n"
        " mov %rcx, (%rbp)\n mov %rax, 8(%rbp)\n mov %rbp, (%rcx)\n mov %rax, 8(%rcx)\n"
        "3: " WAIT_FOREVER ".cfi_endproc\n.size chained, .-chained\n");

extern void circle(void), astray(void), device(void *), forever(void), chained(void);

static volatile unsigned sink;

FRAME void deep(unsigned left) {
	if (left == 0)
		for (;;)
			sink++;
	deep(left - 1);
	sink++;
}

static uint64_t *volatile shifted;

// Code that runs with its own part of the stack open to be written.
FRAME void shifting_leaf(void) {
	volatile uint64_t here[64];
	shifted = (uint64_t *)here;
	for (;;)
		sink += (unsigned)here[3];
}

// Writes addresses of code, of stacks and of nothing below the other thread's stack pointer and into
// its frame.
static void *shifter(void *arg) {
	uint64_t x = 88172645463325252ull;
	for (;;) {
		uint64_t *at = shifted;
		if (!at)
			continue;
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		uint64_t with[] = {x, (uint64_t)deep, (uint64_t)&at[x % 64], 0};
		at[x % 64] = with[(x >> 8) % 4];
	}
	return arg;
}

static void *run(void *arg) {
	const char *kind = arg;
	char name[16];
	snprintf(name, sizeof name, "%s", kind);
	pthread_setname_np(pthread_self(), name);
	// With nothing to write, the kernel ends the process at a signal: none is sent here.
	if (!strcmp(kind, "circle"))
		circle();
	if (!strcmp(kind, "astray"))
		astray();
	if (!strcmp(kind, "device")) {
		int fd = memfd_create("short", MFD_CLOEXEC);
		char *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (fd < 0 || m == MAP_FAILED)
			die("mmap");
		device(m + 4096);
	}
	if (!strcmp(kind, "forever"))
		forever();
	if (!strcmp(kind, "chained"))
		chained();
	if (!strcmp(kind, "deep"))
		deep(1000000);
	if (!strcmp(kind, "shifting"))
		shifting_leaf();
	return NULL;
}

int main(int argc, char **argv) {
	int wait_go = argc > 1 && !strcmp(argv[1], "--wait-go");
	static const char *kinds[] = {"circle", "astray", "device", "forever", "chained", "deep", "shifting"};
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 512 << 20);
	pthread_t t;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (pthread_create(&t, &a, run, (void *)kinds[i]))
			die("pthread_create");
	if (pthread_create(&t, NULL, shifter, NULL))
		die("pthread_create");
	pthread_setname_np(t, "shifter");
	prog_ready(wait_go);
	stacks_honest();
	return 0;
}
