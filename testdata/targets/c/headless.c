// headless: the first thread ends and another one goes on until there is a line on standard input; with the argument
// "exec" that one first executes the program once more.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char **args;
static volatile int sink;

__attribute__((noinline)) void told(void) { sink++; }

__attribute__((noinline)) void leaves(void) {
	sink++;
	_exit(0);
}

static void *waits(void *arg) {
	char line[64];
	if (!strcmp(args[1], "exec"))
		execl(args[0], args[0], "executed", (char *)0);
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		_exit(2);
	told();
	leaves();
	return arg;
}

int main(int argc, char **argv) {
	pthread_t t;
	if (argc < 2)
		return 1;
	args = argv;
	if (!strcmp(argv[1], "executed"))
		waits(0);
	pthread_create(&t, 0, waits, 0);
	pthread_exit(0);
}
