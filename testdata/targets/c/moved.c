// moved MODE: copies its own code to memory without a file at the same addresses, as
// programs do that want huge pages, and computes in outer_entry > middle_work > leaf_spin.
//
//	all     all of its code
//	middle  the pages in the middle alone, with the file's before and behind
//	named   all, in memory that has a name
//	late    all, half a second after it began to compute
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
static volatile unsigned long sink;
static const char *mode;

// Code before and behind, for there to be a middle.
__attribute__((noinline, aligned(PAGE), used)) void first_page(void) { sink++; }
__attribute__((noinline, aligned(PAGE))) void leaf_spin(int n) {
	for (long i = 0; i < n; i++)
		sink += i * i;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void move(void);

__attribute__((noinline)) void middle_work(int n) {
	double begin = now();
	for (int late = !strcmp(mode, "late");;) {
		leaf_spin(n);
		if (late && now() > begin + 0.5) {
			move();
			late = 0;
		}
		sink++;
	}
}
__attribute__((noinline)) void outer_entry(int n) {
	middle_work(n);
	sink++;
}
__attribute__((noinline, aligned(PAGE), used)) void last_page(void) { sink++; }

// remap copies n bytes at from and has the copy take their place in one step.
__attribute__((noinline)) static void remap(char *from, size_t n) {
	char *copy = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(copy, from, n);
#ifdef PR_SET_VMA
	if (!strcmp(mode, "named"))
		prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, copy, n, "text");
#endif
	mprotect(copy, n, PROT_READ | PROT_EXEC);
	if (mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, from) == MAP_FAILED)
		_exit(9);
}

static void move(void) {
	char line[512], perms[8];
	uintptr_t a, b;
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %4s", &a, &b, perms) == 3 && perms[2] == 'x' && (uintptr_t)move >= a && (uintptr_t)move < b)
			break;
	fclose(f);
	if (!strcmp(mode, "middle"))
		a = (uintptr_t)leaf_spin, b = (uintptr_t)last_page;
	remap((char *)a, b - a);
}

int main(int argc, char **argv) {
	mode = argc > 1 ? argv[1] : "all";
	if (strcmp(mode, "late"))
		move();
	printf("ready %d\n", getpid());
	fflush(stdout);
	outer_entry(100000);
}
