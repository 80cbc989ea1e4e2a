// A thread that spends its CPU time in its own code, in system calls and in page faults, and knows how much in each. After
// "ready PID" and a line of input it begins; after another line it prints "shares NS NS NS", the CPU time of compute,
// reading and touching, and waits for a last line.
//
//     owncode COMPUTE READ TOUCH REST      us of each turn
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 18, PAGES = 64 };

static volatile unsigned long sink;
static long shares[3];
static char *memory, buffer[PIECE];
static int zero;

static long cpu(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

// Counts, and reads no clock: one of CPU time takes a call, at whose end stops would take effect, and by one of real time the work would
// end whenever the thread gets back a CPU that others had.
__attribute__((noinline)) static void compute(long rounds) {
	for (long i = 0; i < rounds; i++)
		sink += i;
}

// The rounds of a us, by the fastest of some tries.
static double speed(void) {
	const long tried = 1000000;
	long least = 0;
	for (int i = 0; i < 10; i++) {
		long from = cpu();
		compute(tried);
		long took = cpu() - from;
		if (i == 0 || took < least)
			least = took;
	}
	return 1e3 * tried / least;
}

__attribute__((noinline)) static void reading(long until) {
	while (cpu() < until)
		if (read(zero, buffer, PIECE) <= 0) { // a stop may cut it short
			perror("read");
			exit(1);
		}
}

__attribute__((noinline)) static void touch(void) {
	for (int i = 0; i < PAGES; i++)
		memory[i * 4096L] = 1;
	__asm__ volatile("");
}

// The pages are given back in a call, whose CPU time is that of reading.
static long touching(long until) {
	long given = 0;
	while (cpu() < until) {
		long a = cpu();
		madvise(memory, PAGES * 4096L, MADV_DONTNEED);
		given += cpu() - a;
		touch();
	}
	return given;
}

int main(int argc, char **argv) {
	if (argc != 5)
		return 2;
	long us[4];
	for (int i = 0; i < 4; i++)
		us[i] = atol(argv[i + 1]);
	zero = open("/dev/zero", O_RDONLY);
	memory = mmap(NULL, PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (zero < 0 || memory == MAP_FAILED)
		return 1;
	madvise(memory, PAGES * 4096L, MADV_NOHUGEPAGE);
	long rounds = us[0] * speed();
	printf("ready %d\n", getpid());
	fflush(stdout);
	char line[8];
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (;;) {
		struct pollfd in = {.fd = 0, .events = POLLIN};
		int said = poll(&in, 1, 0);
		if (said < 0) {
			perror("poll");
			return 1;
		}
		if (said > 0)
			break;
		long from = cpu();
		compute(rounds);
		long computed = cpu();
		reading(computed + us[1] * 1000);
		long read = cpu();
		long given = touching(read + us[2] * 1000), end = cpu();
		shares[0] += computed - from;
		shares[1] += read - computed + given;
		shares[2] += end - read - given;
		if (us[3] > 0)
			usleep(us[3]);
	}
	if (!fgets(line, sizeof line, stdin))
		return 1;
	printf("shares %ld %ld %ld\n", shares[0], shares[1], shares[2]);
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 0 : 1;
}
