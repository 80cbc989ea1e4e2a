//go:build chaincgo

#include "zeta.h"
#include "_cgo_export.h"
#include <time.h>

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noipa)) struct zeta_times chain_zeta_c(uintptr_t run, int i, int work, uint64_t ns) {
	struct zeta_times t;
	t.begin = now();
	uint64_t deadline = t.begin + ns, at;
	while ((at = now()) < deadline) {
		struct timespec left = {(time_t)((deadline - at) / 1000000000u), (long)((deadline - at) % 1000000000u)};
		if (work)
			nanosleep(&left, NULL);
	}
	t.call = now();
	chainCallback(run, i);
	t.ret = now();
	t.end = now();
	return t;
}
