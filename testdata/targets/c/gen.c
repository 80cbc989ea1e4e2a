// gen computes for some ms, writes a line, and repeats that: gen MS TIMES. A reader of its output waits for it.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	for (int i = atoi(argv[2]); i > 0; i--) {
		long long end = now() + atoi(argv[1]) * 1000000LL;
		unsigned x = 1;
		while (now() < end)
			for (int k = 0; k < 1000; k++)
				x = x * 1664525 + 1013904223;
		printf("%u\n", x);
		fflush(stdout);
	}
	return 0;
}
