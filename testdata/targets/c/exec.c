// Becomes another program. Options: --times N (how often it executes itself),
// --ms N (how long each spins before), --until-line (each spins until a line of
// input comes), --then PROGRAM (executed at last, with the arguments that follow
// --), --from-thread (the call is made by a second thread, whose number then
// becomes that of the process), --wait-go.
// Prints {"pid":N,"left":N} at each start.
#include "prog.h"

#include <poll.h>

static char **next;
static int until_line;

FRAME void exec_spin(uint64_t ms) {
	struct pollfd input = {0, POLLIN, 0};
	do
		prog_spin(prog_now() + ms * 1000000);
	while (until_line && poll(&input, 1, 0) == 0);
	char line[64];
	if (until_line && read(0, line, sizeof line) < 0)
		die("read");
	__asm__ volatile("" ::: "memory");
}

FRAME void *exec_next(void *arg) {
	exec_spin(*(uint64_t *)arg);
	execv(next[0], next);
	die(next[0]);
	return NULL;
}

int main(int argc, char **argv) {
	uint64_t times = 1, ms = 200;
	int wait_go = 0, from_thread = 0;
	const char *then = NULL;
	static const struct option longs[] = {{"times", 1, 0, 'n'},       {"ms", 1, 0, 'm'},
	                                      {"until-line", 0, 0, 'u'},  {"then", 1, 0, 'p'},
	                                      {"from-thread", 0, 0, 't'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "+", longs, NULL)) != -1;)
		switch (c) {
		case 'n': times = prog_number(optarg); break;
		case 'm': ms = prog_number(optarg); break;
		case 'u': until_line = 1; break;
		case 'p': then = optarg; break;
		case 't': from_thread = 1; break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	prog_ready(wait_go);
	printf("{\"pid\":%d,\"left\":%" PRIu64 "}\n", (int)getpid(), times);
	fflush(stdout);
	next = (char **)calloc((size_t)argc + 11, sizeof *next);
	int n = 0;
	char left[24], each[24];
	snprintf(left, sizeof left, "%" PRIu64, times - 1);
	snprintf(each, sizeof each, "%" PRIu64, ms);
	if (times > 0) {
		next[n++] = argv[0];
		next[n++] = (char *)"--times";
		next[n++] = left;
		next[n++] = (char *)"--ms";
		next[n++] = each;
		if (from_thread)
			next[n++] = (char *)"--from-thread";
		if (until_line)
			next[n++] = (char *)"--until-line";
		if (then) {
			next[n++] = (char *)"--then";
			next[n++] = (char *)then;
		}
		next[n++] = (char *)"--";
	} else if (then) {
		next[n++] = (char *)then;
	} else {
		exec_spin(ms);
		return 0;
	}
	for (int i = optind; i < argc; i++)
		next[n++] = argv[i];
	if (!from_thread) {
		exec_next(&ms);
		return 3;
	}
	pthread_t thread;
	if (pthread_create(&thread, NULL, exec_next, &ms))
		die("pthread_create");
	pthread_setname_np(thread, "execer");
	pthread_join(thread, NULL); // exec ends this thread
	return 3;
}
