// load.c WAY COUNTER: rounds of work whose cost is mostly the kernel's, over and over. WAY is "calls" (getrandom, reads of
// /dev/zero, page faults and some work of its own) or "turns" (two threads of one CPU that wake each other by pipes). COUNTER
// is a file into which it writes how many rounds it has made, as 8 bytes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { PART = 8 << 10, PAGES = 16 };
static volatile uint64_t *rounds;
static int there[2], back[2];

__attribute__((noinline)) static uint64_t own(uint64_t n) {
	for (volatile int i = 0; i < 4000; i++) n = n * 2862933555777941757u + 1;
	return n;
}

static int calls(void) {
	static char part[PART];
	char *pages = mmap(NULL, PAGES << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (pages == MAP_FAILED || zero < 0) return 1;
	for (;; ++*rounds) {
		if (getrandom(part, sizeof part, 0) < 0 || read(zero, part, sizeof part) < 0) return 1;
		for (int i = 0; i < PAGES; i++) pages[i << 12] = 1;
		if (madvise(pages, PAGES << 12, MADV_DONTNEED)) return 1;
		own(*rounds);
	}
}

static void *echo(void *unused) {
	char c;
	while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1) {}
	return unused;
}

static int turns(void) {
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	pthread_t other;
	char c = 0;
	if (sched_setaffinity(0, sizeof one, &one) || pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC) || pthread_create(&other, NULL, echo, NULL)) return 1;
	while (write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1) ++*rounds;
	return 1;
}

int main(int n, char **v) {
	int f = n == 3 ? open(v[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (f < 0 || ftruncate(f, 8)) return 1;
	rounds = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	if (rounds == MAP_FAILED) return 1;
	return strcmp(v[1], "turns") ? calls() : turns();
}
