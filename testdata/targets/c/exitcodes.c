// Ends as its options say, so that a test can compare its end, its output and its
// signals with and without a tracer. Options: --status N (exit status),
// --signal N (killed by that signal instead), --ms N (spins
// that long first), --threads N (others, which sleep until the end),
// --exit-thread (main ends by pthread_exit, a second thread ends the
// process), --count (counts SIGUSR1 and SIGCONT while it waits for a line of
// standard input instead of --ms), --echo (copies standard input to
// standard output first), --wait-go.
// Prints {"signals":N,"continued":N,"interrupted":N} with --count:
// "interrupted" is how often the read of standard input returned EINTR,
// which SA_RESTART handlers do not cause.
#include "prog.h"
#include <sys/resource.h>

static volatile sig_atomic_t signals, continued;
static uint64_t ms;
static int status, sig;

static void on_signal(int number) {
	if (number == SIGUSR1)
		signals++;
	else
		continued++;
}

FRAME void end_as_told(void) {
	prog_spin(prog_now() + ms * 1000000);
	if (sig) {
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		signal(sig, SIG_DFL);
		kill(getpid(), sig);
		pause();
	}
	exit(status);
}

static void *ender(void *arg) {
	pthread_join(*(pthread_t *)arg, NULL);
	end_as_told();
	return NULL;
}

static void *sleeper(void *arg) {
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static void count(void) {
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_signal;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGCONT, &sa, NULL);
}

int main(int argc, char **argv) {
	uint64_t threads = 0, interrupted = 0;
	int wait_go = 0, exit_thread = 0, counting = 0, echo = 0;
	static const struct option longs[] = {
	    {"status", 1, 0, 'x'}, {"signal", 1, 0, 'k'}, {"ms", 1, 0, 'm'},   {"threads", 1, 0, 't'}, {"exit-thread", 0, 0, 'y'},
	    {"count", 0, 0, 'c'},  {"echo", 0, 0, 'e'},   {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 'x': status = (int)prog_number(optarg); break;
		case 'k': sig = (int)prog_number(optarg); break;
		case 'm': ms = prog_number(optarg); break;
		case 't': threads = prog_number(optarg); break;
		case 'y': exit_thread = 1; break;
		case 'c': counting = 1; break;
		case 'e': echo = 1; break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	if (optind != argc || threads > 1000)
		return 2;
	if (counting)
		count();
	pthread_t thread, self = pthread_self();
	for (uint64_t k = 0; k < threads; k++)
		if (pthread_create(&thread, NULL, sleeper, NULL))
			die("pthread_create");
	prog_ready(wait_go);
	if (echo) {
		int c;
		while ((c = getchar()) != EOF)
			putchar(c);
		fflush(stdout);
	}
	if (counting) {
		char c = 0;
		while (c != '\n') {
			ssize_t n = read(0, &c, 1);
			if (n < 0 && errno == EINTR)
				interrupted++;
			else if (n <= 0)
				break;
		}
		printf("{\"signals\":%d,\"continued\":%d,\"interrupted\":%" PRIu64 "}\n", (int)signals, (int)continued, interrupted);
		fflush(stdout);
	}
	if (exit_thread) {
		if (pthread_create(&thread, NULL, ender, &self))
			die("pthread_create");
		pthread_exit(NULL);
	}
	end_as_told();
	return 3;
}
