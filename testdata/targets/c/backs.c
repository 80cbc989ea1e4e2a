/*
 * backs: reads PATH at the end of a chain of calls, and prints the chain as backtrace() has it.
 *
 *   backs PATH
 *
 * prints "ready PID" and waits for a line of input, opens and reads PATH below a callback of
 * qsort and some recursion, prints "truth" and the return addresses of the callers of reading,
 * innermost first, then "done", and waits for the end of its input.
 */
#include <execinfo.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { DEPTH = 40, MOST = 200 };

static const char *path;
static void *chain[MOST];
static int frames;

NOINLINE void reading(void)
{
	char b[16];
	int fd = open(path, O_RDONLY);
	if (fd < 0 || pread(fd, b, sizeof b, 0) < 0) {
		perror(path);
		exit(1);
	}
	frames = backtrace(chain, MOST);
	close(fd);
}

NOINLINE void deep(int n, volatile char *keep)
{
	char room[n * 16 + 16];
	room[0] = *keep;
	if (n > 0)
		deep(n - 1, room);
	else
		reading();
	*keep = room[0];
}

static int compare(const void *a, const void *b)
{
	char x = 0;
	if (!frames)
		deep(DEPTH, &x);
	return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv)
{
	char line[64];
	if (argc != 2)
		return 2;
	path = argv[1];
	backtrace(chain, MOST); /* loads its library */
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		int numbers[] = { 3, 1, 2 };
		frames = 0;
		qsort(numbers, 3, sizeof numbers[0], compare);
		printf("truth");
		for (int i = 1; i < frames; i++)
			printf(" %p", chain[i]);
		printf("\ndone\n");
		fflush(stdout);
	}
	return 0;
}
