// Call chains that are hard to walk, each ending in leaf's breakpoint. The
// second argument names the chain; its functions are what walk_test.go expects.
#include "dump.h"
#include <alloca.h>
#include <pthread.h>

NOINLINE int leaf(int x) { BREAK(); return x; }
NOINLINE int plain2(int x) { int r = leaf(x + 1); AFTER(r); return r; }
NOINLINE int plain1(int x) { int r = plain2(x + 1); AFTER(r); return r; }

// Keeps many values across a call: every register that a callee saves.
NOINLINE int busy(volatile int *p) {
	int a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7];
	int r = plain1(a);
	AFTER(r);
	return r + a * b + c * d + e * f + g * h;
}

NOINLINE int dynamic(int n) {
	char *p = alloca(n);
	memset(p, n, n);
	int r = plain1(p[n - 1]);
	AFTER(r);
	return r + p[0];
}

typedef int wide __attribute__((vector_size(64)));
NOINLINE void keep(void *p) { __asm__ volatile("" :: "r"(p) : "memory"); }
NOINLINE int realigned(int n) {
	wide v = {n};
	char *p = alloca(n);
	keep(&v);
	keep(p);
	int r = plain1(v[0]);
	AFTER(r);
	return r + v[1] + p[0];
}

NOINLINE int deep(int n) {
	int r = n ? deep(n - 1) : leaf(n);
	AFTER(r);
	return r;
}

NOINLINE void on_usr1(int sig) { int r = plain1(sig); AFTER(r); }
NOINLINE int interrupted(int x) { raise(SIGUSR1); AFTER(x); return x; }
NOINLINE void on_segv(int sig) { int r = plain1(sig); AFTER(r); }
NOINLINE int faulting(volatile int *p) { return *p; }
NOINLINE int fault(int x) { int r = faulting((int *)(long)(x == -1)); AFTER(r); return r; }

NOINLINE int compare(const void *a, const void *b) {
	(void)a; (void)b;
	int r = plain1(1);
	AFTER(r);
	return r;
}
NOINLINE int sorted(void) {
	int v[] = {2, 1};
	qsort(v, 2, sizeof v[0], compare);
	return v[0];
}

NOINLINE void *started(void *p) { int r = plain1((int)(long)p); AFTER(r); return 0; }
NOINLINE int thread(int x) {
	pthread_t t;
	if (pthread_create(&t, 0, started, (void *)(long)x)) return 1;
	pthread_join(t, 0);
	return x;
}

int main(int argc, char **argv) {
	if (argc < 3) return 2;
	volatile int v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	dump_init(argv[2]);
	struct sigaction sa = {.sa_handler = on_usr1};
	sigaction(SIGUSR1, &sa, 0);
	sa.sa_handler = on_segv;
	sigaction(SIGSEGV, &sa, 0);
	int r = 0;
	const char *c = argv[1];
	if (!strcmp(c, "plain")) r = plain1(argc);
	if (!strcmp(c, "busy")) r = busy(v);
	if (!strcmp(c, "dynamic")) r = dynamic(argc * 100);
	if (!strcmp(c, "realigned")) r = realigned(argc * 100);
	if (!strcmp(c, "deep")) r = deep(10000);
	if (!strcmp(c, "signal")) r = interrupted(argc);
	if (!strcmp(c, "altsignal")) {
		static char alt[1 << 16];
		stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
		sigaltstack(&ss, 0);
		sa.sa_flags = SA_ONSTACK;
		sigaction(SIGSEGV, &sa, 0);
		r = fault(argc);
	}
	if (!strcmp(c, "fault")) r = fault(argc);
	if (!strcmp(c, "sorted")) r = sorted();
	if (!strcmp(c, "thread")) r = thread(argc);
	AFTER(r);
	return 1;
}
