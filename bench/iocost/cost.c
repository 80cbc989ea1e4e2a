/*
 * cost: how long I/O system calls take in this process.
 *
 *   cost FILE WINDOW_MS
 *
 * For each line of input it measures for a window of that many milliseconds and prints
 * "read NS open NS none NS elapsed NS": the CPU time, on average, of a read of one byte, of the
 * four calls open, read, read, close, and of getppid, which no tool watches, and what the read
 * took on the clock. The three take short turns, so that all see the same machine; CPU time does
 * not count what other processes take, but neither the time for which a tracer holds the thread.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const clockid_t cpu = CLOCK_THREAD_CPUTIME_ID;
	uint64_t window = strtoull(argv[2], NULL, 10) * 1000000;
	int fd = open(argv[1], O_RDONLY);
	char line[64], b[16];
	if (fd < 0)
		return 1;
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		uint64_t time[3] = { 0 }, calls[3] = { 0 }, elapsed = 0, end = now(CLOCK_MONOTONIC) + window;
		for (uint64_t from = 0; from < end;) {
			from = now(CLOCK_MONOTONIC);
			uint64_t at = now(cpu);
			for (int i = 0; i < 50; i++)
				if (pread(fd, b, 1, 0) != 1)
					return 1;
			uint64_t t1 = now(cpu);
			elapsed += now(CLOCK_MONOTONIC) - from;
			for (int i = 0; i < 12; i++) {
				int x = open(argv[1], O_RDONLY);
				if (x < 0 || read(x, b, 1) != 1 || read(x, b, 1) != 1 || close(x))
					return 1;
			}
			uint64_t t2 = now(cpu);
			for (int i = 0; i < 50; i++)
				syscall(SYS_getppid);
			uint64_t t3 = now(cpu);
			time[0] += t1 - at, time[1] += t2 - t1, time[2] += t3 - t2;
			calls[0] += 50, calls[1] += 48, calls[2] += 50;
		}
		printf("read %.1f open %.1f none %.1f elapsed %.1f\n", (double)time[0] / calls[0], (double)time[1] / calls[1], (double)time[2] / calls[2],
		       (double)elapsed / calls[0]);
		fflush(stdout);
	}
	return 0;
}
