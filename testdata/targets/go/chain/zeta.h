#pragma once
#include <stdint.h>

struct zeta_times {
	uint64_t begin, call, ret, end;
};

// Spins (work 0) or sleeps for ns, then calls back to Go for node i of the run.
struct zeta_times chain_zeta_c(uintptr_t run, int i, int work, uint64_t ns);
