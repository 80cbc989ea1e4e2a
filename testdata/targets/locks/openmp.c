// A team of OpenMP whose first thread is busy while the others wait. Usage:
// openmp pool|barrier|end|critical|ordered. Prints {"kind":…,"waiters":[TID,…]}
// once the others are about to wait, and ends after a line on standard input.
#include "prog.h"

enum { TEAM = 4 };

static int tids[TEAM], arrived;
static const char *kind;

static void arrive(int i) {
	tids[i] = prog_tid();
	__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
}

static void all_arrived(void) {
	while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < TEAM)
		sched_yield();
}

// busy is what the first thread does while the others wait.
static void busy(int i) {
	if (i != 0)
		return;
	all_arrived();
	printf("{\"kind\":\"%s\",\"waiters\":[", kind);
	for (int k = 1; k < TEAM; k++)
		printf("%s%d", k > 1 ? "," : "", tids[k]);
	printf("]}\n");
	fflush(stdout);
	prog_await();
}

// They have nothing to do: the program is outside of a parallel region.
static void pool(void) {
#pragma omp parallel for schedule(static, 1) num_threads(TEAM)
	for (int i = 0; i < TEAM; i++)
		arrive(i);
	busy(0);
}

static void barrier(void) {
	int turn = 0;
#pragma omp parallel num_threads(TEAM)
	{
		int i = __atomic_fetch_add(&turn, 1, __ATOMIC_ACQ_REL);
		arrive(i);
		busy(i);
#pragma omp barrier
	}
}

// They wait at the end of the parallel region.
static void end(void) {
#pragma omp parallel for schedule(static, 1) num_threads(TEAM)
	for (int i = 0; i < TEAM; i++) {
		arrive(i);
		busy(i);
	}
}

static void critical(void) {
	int entered = 0;
#pragma omp parallel for schedule(static, 1) num_threads(TEAM)
	for (int i = 0; i < TEAM; i++) {
		if (i > 0) {
			while (!__atomic_load_n(&entered, __ATOMIC_ACQUIRE))
				sched_yield();
			arrive(i);
		}
#pragma omp critical
		if (i == 0) {
			__atomic_store_n(&entered, 1, __ATOMIC_RELEASE);
			arrive(i);
			busy(i);
		}
	}
}

static void ordered(void) {
#pragma omp parallel for ordered schedule(static, 1) num_threads(TEAM)
	for (int i = 0; i < TEAM; i++) {
		arrive(i);
#pragma omp ordered
		busy(i);
	}
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*run)(void);
	} kinds[] = {{"pool", pool}, {"barrier", barrier}, {"end", end}, {"critical", critical}, {"ordered", ordered}};
	for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].name, argv[1]) == 0) {
			kind = argv[1];
			kinds[i].run();
			return 0;
		}
	fprintf(stderr, "usage: %s pool|barrier|end|critical|ordered\n", argv[0]);
	return 2;
}
