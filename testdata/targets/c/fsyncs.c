/*
 * fsyncs: writes to a file and waits for the disk, again and again.
 *
 *   fsyncs FILE TIMES
 *
 * prints "ready PID". At each line of input it writes TIMES times, prints
 * "done", and ends at the end of the input.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char line[64], block[4096] = "data";
	int fd;
	if (argc != 3 || (fd = open(argv[1], O_CREAT | O_RDWR, 0600)) < 0)
		return 2;
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		for (long i = 0, n = atol(argv[2]); i < n; i++)
			if (pwrite(fd, block, sizeof block, i * sizeof block) != sizeof block || fsync(fd))
				return 3;
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
