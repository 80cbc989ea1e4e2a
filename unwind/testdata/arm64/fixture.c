// A program for arm64 without any library that dumps itself as dump.h does:
// a chain of functions, a signal handler, more functions, a breakpoint.
// fixture_test.go reads the program and its dump; both were made by make.sh.
typedef unsigned long u64;
#define NOINLINE __attribute__((noinline, noclone, noipa))
#define AFTER(x) __asm__ volatile("" : "+r"(x) :: "memory")

static long call3(long n, long a, long b, long c, long d) {
	register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
static void put(const void *p, u64 n) { call3(64, 1, (long)p, n, 0); }
static void puts_(const char *s) { u64 n = 0; while (s[n]) n++; put(s, n); }
static void hex(u64 v) {
	char b[17]; int i = 16; b[16] = 0;
	do { b[--i] = "0123456789abcdef"[v & 15]; v >>= 4; } while (v);
	puts_(b + i);
}
static void dec(u64 v) { if (v > 9) dec(v / 10); char c = '0' + v % 10; put(&c, 1); }
static void bytes(const char *what, u64 lo, u64 hi) {
	puts_(what); hex(lo); puts_(" "); hex(hi - lo); puts_("\n"); put((void *)lo, hi - lo); puts_("\n");
}

static u64 top, trampoline;

static void on_trap(int sig, void *info, char *uc) {
	u64 *r = (u64 *)(uc + 176 + 8); // x0…x30, sp, pc: see contextARM64
	for (int i = 0; i < 32; i++) { puts_("reg "); dec(i); puts_(" "); hex(r[i]); puts_("\n"); }
	puts_("pc "); hex(r[32]); puts_("\n");
	bytes("code ", trampoline, trampoline + 8);
	puts_("map "); hex(trampoline & ~4095ul); puts_("-"); hex((trampoline & ~4095ul) + 4096); puts_(" r-xp 0 00:00 0\n");
	puts_("map "); hex((r[31] - 128) & ~4095ul); puts_("-"); hex((top + 4096) & ~4095ul); puts_(" rw-p 0 00:00 0 [stack]\n");
	bytes("stack ", r[31] - 128, top);
	puts_("end\n");
	call3(94, 0, 0, 0, 0);
}

static char alt[32768] __attribute__((aligned(16)));
struct action { void *handler; u64 flags; void *restorer; u64 mask; };
static void handle(int sig, void *f, u64 flags) {
	struct action a = {f, flags, 0, 0};
	call3(134, sig, (long)&a, 0, 8);
}

NOINLINE int leaf(int x) { __asm__ volatile("brk #0"); return x; }
NOINLINE int inner(int x) { int r = leaf(x + 1); AFTER(r); return r; }
NOINLINE void on_usr1(int sig) {
	trampoline = (u64)__builtin_extract_return_addr(__builtin_return_address(0));
	int r = inner(sig); AFTER(r);
}
NOINLINE int raise_(int x) { long r = call3(129, call3(172, 0, 0, 0, 0), 10, 0, 0); AFTER(r); return x; }
NOINLINE int big(int n) {
	volatile char b[9000];
	b[0] = n; b[8999] = n;
	int r = raise_(b[0]); AFTER(r);
	return r + b[8999];
}
NOINLINE int dynamic(int n) {
	char *p = __builtin_alloca(n);
	for (int i = 0; i < n; i++) ((volatile char *)p)[i] = i;
	int r = big(p[n - 1]); AFTER(r);
	return r + p[0];
}
NOINLINE void cmain(u64 sp) {
	top = sp + 64;
	struct { void *sp; int flags; u64 size; } ss = {alt, 0, sizeof alt};
	call3(132, (long)&ss, 0, 0, 0);
	handle(5, on_trap, 4 | 0x08000000); // SIGTRAP, SA_SIGINFO | SA_ONSTACK
	handle(10, on_usr1, 4);
	int r = dynamic(100); AFTER(r);
	call3(94, r, 0, 0, 0);
}
__asm__(".globl _start\n.type _start, %function\n_start:\n.cfi_startproc\n.cfi_undefined x30\nmov x0, sp\nbl cmain\nbrk #1\n.cfi_endproc\n.size _start, .-_start\n");
