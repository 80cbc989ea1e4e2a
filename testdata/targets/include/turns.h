// Common code of programs whose threads take turns with locks: the log of which
// thread waited for which lock, which held it, and when. A program prints
// {"lock":"0x…","pid":PID,"threads":[TID,…]} (lock 0x0: there are many, or it
// has no address; the threads are those of the process itself), begins after
// a line of standard input, and at its end prints
// {"waits":[[TID,lock,wanted,got],…],"holds":[[TID,lock,from,to],…]}. Times are
// ns of CLOCK_MONOTONIC, taken right around the call that may wait, and right
// inside the time in which the lock is held.
#ifndef TURNS_H
#define TURNS_H
#include "prog.h"
#include <sys/mman.h>

enum { TURNS_MAX = 1 << 16, TURNS_THREADS = 64 };

struct turns_entry {
	uint64_t tid, lock, from, to;
};

// Shared with the program's other processes.
static struct turns {
	uint64_t begin; // when the workers may go; 0: not yet
	uint64_t end;   // when no new turn begins
	uint32_t ready, waits, holds;
	int tids[TURNS_THREADS];
	struct turns_entry wait[TURNS_MAX], hold[TURNS_MAX];
} *turns;

static MAYBE_UNUSED void turns_init(void) {
	void *p = mmap(NULL, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	turns = (struct turns *)p;
}

static MAYBE_UNUSED void turns_add(struct turns_entry *to, uint32_t *n, uint64_t tid, const void *lock, uint64_t a, uint64_t b) {
	uint32_t i = __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
	if (i >= TURNS_MAX)
		die("the log is full");
	struct turns_entry e = {tid, (uint64_t)(uintptr_t)lock, a, b};
	to[i] = e;
}

static MAYBE_UNUSED void turns_waited(int tid, const void *lock, uint64_t wanted, uint64_t got) {
	turns_add(turns->wait, &turns->waits, (uint64_t)tid, lock, wanted, got);
}

static MAYBE_UNUSED void turns_held(int tid, const void *lock, uint64_t from, uint64_t to) {
	turns_add(turns->hold, &turns->holds, (uint64_t)tid, lock, from, to);
}

static MAYBE_UNUSED void turns_sleep(uint64_t us) {
	struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

// turns_work takes between half and one and a half of us, one time in four on the CPU.
static MAYBE_UNUSED void turns_work(unsigned *seed, uint64_t us) {
	us = us / 2 + (uint64_t)rand_r(seed) % (us + 1);
	if (rand_r(seed) % 4 == 0)
		prog_spin(prog_now() + us * 1000);
	else
		turns_sleep(us);
}

// turns_enter is a worker's beginning: it says who it is and waits for the start.
static MAYBE_UNUSED int turns_enter(int i) {
	int tid = prog_tid();
	__atomic_store_n(&turns->tids[i], tid, __ATOMIC_RELEASE);
	__atomic_fetch_add(&turns->ready, 1, __ATOMIC_ACQ_REL);
	while (!__atomic_load_n(&turns->begin, __ATOMIC_ACQUIRE))
		turns_sleep(2000);
	return tid;
}

static MAYBE_UNUSED int turns_on(void) { return prog_now() < __atomic_load_n(&turns->end, __ATOMIC_ACQUIRE); }

// turns_start waits for all n workers, of which the first own are threads of
// this process, and starts them after a line of input.
static MAYBE_UNUSED void turns_start(const void *lock, int n, int own, uint64_t seconds) {
	while (__atomic_load_n(&turns->ready, __ATOMIC_ACQUIRE) < (uint32_t)n)
		turns_sleep(1000);
	printf("{\"lock\":\"0x%" PRIxPTR "\",\"pid\":%d,\"threads\":[", (uintptr_t)lock, (int)getpid());
	for (int i = 0; i < own; i++)
		printf("%s%d", i ? "," : "", turns->tids[i]);
	printf("]}\n");
	fflush(stdout);
	prog_await();
	turns->end = prog_now() + seconds * 1000000000u;
	__atomic_store_n(&turns->begin, 1, __ATOMIC_RELEASE);
}

static MAYBE_UNUSED void turns_list(const char *name, const struct turns_entry *e, uint32_t n) {
	printf("\"%s\":[", name);
	for (uint32_t i = 0; i < n; i++)
		printf("%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "", e[i].tid, e[i].lock, e[i].from, e[i].to);
	printf("]");
}

static MAYBE_UNUSED void turns_report(void) {
	printf("{");
	turns_list("waits", turns->wait, turns->waits);
	printf(",");
	turns_list("holds", turns->hold, turns->holds);
	printf("}\n");
	fflush(stdout);
}
#endif
