// A program that makes trouble for its observers, and computes all the while.
// Options: --name (its own name and that of a thread have escape sequences, a line
// feed and invalid UTF-8), --perf-map lines|junk|sparse (a map of two
// million entries, one without any, one of 100 GB that is a hole), --wait-go.
#include <sys/mman.h>
#include <sys/prctl.h>

#include "prog.h"

FRAME void nasty_work(void) { prog_spin(prog_now() + 3600 * 1000000000ull); }

static void *worker(void *arg) {
	nasty_work();
	return arg;
}

static void perf_map(const char *kind) {
	char path[64];
	snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
	FILE *f = fopen(path, "w");
	if (!f)
		die("perf map");
	if (!strcmp(kind, "lines")) {
		for (uint64_t i = 0; i < 2000000; i++)
			fprintf(f, "%llx 10 f%llu\n", (unsigned long long)(0x7000000000ull + 16 * i), (unsigned long long)i);
	} else if (!strcmp(kind, "junk")) {
		for (int i = 0; i < 1000000; i++)
			fputs("this line is not an entry of a map, and there are many of it\n", f);
	} else if (!strcmp(kind, "sparse")) {
		fputs("7000000000 10 first\n", f);
		if (fseeko(f, 100ll << 30, SEEK_SET) != 0)
			die("seek");
		fputs("\n7000000010 10 last\n", f);
	}
	fclose(f);
	// Generated code, without which a profiler does not read a map.
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		die("mmap");
}

int main(int argc, char **argv) {
	int name = 0, wait_go = 0;
	const char *map = NULL;
	static const struct option longs[] = {{"name", 0, 0, 'n'}, {"perf-map", 1, 0, 'p'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 'n': name = 1; break;
		case 'p': map = optarg; break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	if (map)
		perf_map(map);
	pthread_t t;
	if (pthread_create(&t, NULL, worker, NULL))
		die("pthread_create");
	if (name) {
		// A title, a colour, the C1 form of CSI as one byte and as UTF-8.
		prctl(PR_SET_NAME, "\x1b]0;x\x07\n\x1b[31mA");
		pthread_setname_np(t, "\x9b" "5m\n\xc2\x9b" "2J\x1b[2J");
	}
	prog_ready(wait_go);
	nasty_work();
	return 0;
}
