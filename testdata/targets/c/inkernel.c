// inkernel SECONDS: threads that spend CPU time in the kernel in known ways: random fills a large buffer by
// getrandom(2), zero reads /dev/zero, faults touches new pages, mixed works for about as long as it reads /dev/zero, spin
// makes no calls. The last line is the truth, by CLOCK_THREAD_CPUTIME_ID: of each thread the ns of CPU time, and those
// in calls as far as they were measured.
#include "prog.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { BIG = 1 << 20, PART = 1 << 18, THREADS = 5 };

static uint64_t end;
static pthread_barrier_t barrier;

struct one {
	const char *name;
	void (*work)(struct one *);
	pthread_t thread;
	int tid;
	uint64_t cpu, calls;
	char *memory;
};

static uint64_t cpu(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

FRAME void get_random(struct one *o) {
	while (prog_now() < end)
		if (syscall(SYS_getrandom, o->memory, BIG, 0) < 0)
			die("getrandom");
}

static int zeros(void) {
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("/dev/zero");
	return fd;
}

FRAME void read_part(int fd, char *to, size_t n) {
	if (read(fd, to, n) < 0)
		die("read");
}

FRAME void read_zeros(struct one *o) {
	int fd = zeros();
	while (prog_now() < end)
		read_part(fd, o->memory, BIG);
}

FRAME void touch(struct one *o) {
	if (madvise(o->memory, BIG, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("madvise");
	while (prog_now() < end) {
		for (int i = 0; i < BIG; i += 4096)
			((volatile char *)o->memory)[i] = 1;
		if (madvise(o->memory, BIG, MADV_DONTNEED))
			die("madvise");
	}
}

FRAME void burn(uint64_t loops) {
	for (uint64_t i = 0; i < loops; i++)
		__asm__ volatile("");
}

FRAME void mix(struct one *o) {
	int fd = zeros();
	uint64_t loops = 1000, out = 1, in = 1;
	while (prog_now() < end) {
		uint64_t a = cpu();
		burn(loops);
		uint64_t b = cpu();
		for (int i = 0; i < 8; i++)
			read_part(fd, o->memory, PART);
		uint64_t c = cpu();
		out += b - a, in += c - b, o->calls += c - b;
		if (out < in)
			loops += 1000;
		else if (loops > 1000)
			loops -= 1000;
	}
}

FRAME void spin(struct one *o) {
	(void)o;
	prog_spin(end);
}

static void *run(void *arg) {
	struct one *o = (struct one *)arg;
	o->tid = prog_tid();
	prctl(PR_SET_NAME, o->name, 0, 0, 0);
	o->memory = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (o->memory == MAP_FAILED)
		die("mmap");
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	o->work(o);
	o->cpu = cpu();
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier); // it lives until its samples are taken
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 2)
		return 2;
	uint64_t seconds = prog_number(argv[1]);
	struct one all[THREADS] = {{.name = "random", .work = get_random}, {.name = "zero", .work = read_zeros}, {.name = "faults", .work = touch},
	    {.name = "mixed", .work = mix}, {.name = "spin", .work = spin}};
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&all[i].thread, NULL, run, &all[i]))
			die("pthread_create");
	pthread_barrier_wait(&barrier);
	prog_ready(1);
	end = prog_now() + seconds * 1000000000u;
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	printf("{\"threads\":[");
	for (int i = 0; i < THREADS; i++)
		printf("%s{\"name\":\"%s\",\"tid\":%d,\"cpu\":%" PRIu64 ",\"calls\":%" PRIu64 "}", i ? "," : "", all[i].name, all[i].tid, all[i].cpu, all[i].calls);
	printf("]}\n");
	fflush(stdout);
	prog_await();
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i].thread, NULL);
	return 0;
}
