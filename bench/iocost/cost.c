/*
 * cost: how long I/O system calls take in this process.
 *
 *   cost FILE WINDOW_MS
 *
 * For each line of input it measures for a window of that many milliseconds and prints
 * "read NS open NS none NS": the mean of a read of one byte, of the four calls open, read,
 * read, close, and of getppid, which no tool watches. The windows of the three are short
 * turns of each other, so that all see the same machine.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	uint64_t window = strtoull(argv[2], NULL, 10) * 1000000;
	int fd = open(argv[1], O_RDONLY);
	char line[64], b[16];
	if (fd < 0)
		return 1;
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		uint64_t time[3] = { 0 }, calls[3] = { 0 }, end = now() + window;
		for (uint64_t at = now(); at < end;) {
			for (int i = 0; i < 50; i++)
				if (pread(fd, b, 1, 0) != 1)
					return 1;
			uint64_t t1 = now();
			for (int i = 0; i < 12; i++) {
				int x = open(argv[1], O_RDONLY);
				if (x < 0 || read(x, b, 1) != 1 || read(x, b, 1) != 1 || close(x))
					return 1;
			}
			uint64_t t2 = now();
			for (int i = 0; i < 50; i++)
				syscall(SYS_getppid);
			uint64_t t3 = now();
			time[0] += t1 - at, time[1] += t2 - t1, time[2] += t3 - t2;
			calls[0] += 50, calls[1] += 48, calls[2] += 50;
			at = t3;
		}
		printf("read %.1f open %.1f none %.1f\n", (double)time[0] / calls[0], (double)time[1] / calls[1], (double)time[2] / calls[2]);
		fflush(stdout);
	}
	return 0;
}
