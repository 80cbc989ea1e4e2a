// jitreuse PHASES [FOLDER]: a small model of a JIT's memory. Several functions use one
// address in turn: each runs until a line is read, under its
// own name, which is in /tmp/perf-PID.map just before. Prints "begins NAME" at the
// start, and then "NAME FROM TO", ns of CLOCK_MONOTONIC between which it certainly ran; the
// next one begins at another line. The map is removed at the end. With a FOLDER, a jitdump
// in it replaces the map.
#include "prog.h"
#include <sys/mman.h>

// Loops until the word at the address in its argument is not 0.
#ifdef __aarch64__
static const uint32_t loop[] = {0xb9400001, 0x34ffffe1, 0xd65f03c0}; // ldr w1, [x0]; cbz w1, -4; ret
#else
static const uint8_t loop[] = {0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa, 0xc3}; // mov (%rdi), %eax; test; je -6; ret
#endif

static volatile int stop;
static uint64_t until;

static void *bell(void *_) {
	(void)_;
	prog_await();
	until = prog_now();
	stop = 1;
	return NULL;
}

// A jitdump, as tools/perf/Documentation/jitdump-specification.txt of Linux has it.
static void dump_begin(FILE *dump) {
	struct {
		uint32_t magic, version, size, machine, pad, pid;
		uint64_t time, flags;
	} head = {0x4A695444, 1, sizeof head, 62, 0, (uint32_t)getpid(), prog_now(), 0};
#ifdef __aarch64__
	head.machine = 183;
#endif
	fwrite(&head, sizeof head, 1, dump);
	fflush(dump);
	// By this a profiler finds the file.
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
		die("mmap of the jitdump");
}

static void dump_load(FILE *dump, const char *name, const char *code, uint64_t size, uint64_t index) {
	struct {
		uint32_t id, size;
		uint64_t time;
		uint32_t pid, tid;
		uint64_t vma, addr, bytes, index;
	} load = {0, (uint32_t)(sizeof load + strlen(name) + 1 + size), prog_now(), (uint32_t)getpid(), (uint32_t)getpid(),
		(uint64_t)code, (uint64_t)code, size, index};
	fwrite(&load, sizeof load, 1, dump);
	fwrite(name, strlen(name) + 1, 1, dump);
	fwrite(code, size, 1, dump);
}

int main(int argc, char **argv) {
	if (argc != 2 && argc != 3)
		return 2;
	uint64_t phases = prog_number(argv[1]);
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		die("mmap");
	char path[4096];
	snprintf(path, sizeof path, argc == 3 ? "%s/jit-%d.dump" : "%s/perf-%d.map", argc == 3 ? argv[2] : "/tmp", (int)getpid());
	FILE *map = fopen(path, argc == 3 ? "w+" : "w");
	if (!map)
		die(path);
	if (argc == 3)
		dump_begin(map);
	prog_ready(1);
	for (uint64_t i = 0; i < phases; i++) {
		memset(code, 0, 64);
		memcpy(code + 16, loop, sizeof loop);
		__builtin___clear_cache(code, code + 64);
		// An entry of another length each time: it overlaps those before.
		char *begin = code + (i & 1 ? 16 : 0);
		unsigned size = i & 1 ? 32 : 64;
		if (argc == 3) {
			char name[32];
			snprintf(name, sizeof name, "phase%d", (int)i);
			dump_load(map, name, begin, size, i);
		} else {
			fprintf(map, "%lx %x phase%d\n", (unsigned long)begin, size, (int)i);
		}
		fflush(map);
		stop = 0;
		printf("begins phase%d\n", (int)i);
		fflush(stdout);
		uint64_t from = prog_now();
		pthread_t t;
		if (pthread_create(&t, NULL, bell, NULL))
			die("pthread_create");
		((void (*)(volatile int *))(code + 16))(&stop);
		pthread_join(t, NULL);
		printf("phase%d %" PRIu64 " %" PRIu64 "\n", (int)i, from, until);
		fflush(stdout);
		// Wait until that was observed: otherwise a call from the same code at the same
		// address would look like the one before.
		prog_await();
	}
	unlink(path);
	return 0;
}
