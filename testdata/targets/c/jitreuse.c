// jitreuse PHASES MS: a compiler's memory, in small. It has one function at one
// address after the other code that was there: each runs for MS ms under a name
// of its own, which is in /tmp/perf-PID.map just before. Prints "NAME FROM TO"
// for each, ns of CLOCK_MONOTONIC between which it surely ran. The map is
// removed in the end.
#include "prog.h"
#include <sys/mman.h>

// A loop until the word that is pointed at is no longer 0.
#ifdef __aarch64__
static const uint32_t loop[] = {0xb9400001, 0x34ffffe1, 0xd65f03c0}; // ldr w1, [x0]; cbz w1, -4; ret
#else
static const uint8_t loop[] = {0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa, 0xc3}; // mov (%rdi), %eax; test; je -6; ret
#endif

static volatile int stop;
static uint64_t ns, until;

static void *bell(void *_) {
	(void)_;
	struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
	}
	stop = 1;
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	uint64_t phases = prog_number(argv[1]);
	ns = prog_number(argv[2]) * 1000000u;
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		die("mmap");
	char path[64];
	snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
	FILE *map = fopen(path, "w");
	if (!map)
		die(path);
	prog_ready(1);
	for (uint64_t i = 0; i < phases; i++) {
		memset(code, 0, 64);
		memcpy(code + 16, loop, sizeof loop);
		__builtin___clear_cache(code, code + 64);
		// An entry of another length each time: it overlaps those before.
		fprintf(map, "%lx %x phase%d\n", (unsigned long)code + (i & 1 ? 16 : 0), i & 1 ? 32 : 64, (int)i);
		fflush(map);
		stop = 0;
		uint64_t from = prog_now();
		until = from + ns;
		pthread_t t;
		if (pthread_create(&t, NULL, bell, NULL))
			die("pthread_create");
		((void (*)(volatile int *))(code + 16))(&stop);
		printf("phase%d %" PRIu64 " %" PRIu64 "\n", (int)i, from, until);
		fflush(stdout);
		pthread_join(t, NULL);
		// Long enough to be seen: a call from the same place of code at the same
		// address would else be taken for the one before.
		usleep(20000);
	}
	unlink(path);
	return 0;
}
