// handler: a signal handler that computes, above a function that was interrupted.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void spin(void) {
	for (;;)
		sink++;
}

__attribute__((noinline)) void on_alarm(int sig) {
	printf("ready %d\n", getpid());
	fflush(stdout);
	spin();
	sink += sig;
}

__attribute__((noinline)) void interrupted(void) {
	for (;;)
		sink += 3;
}

int main(void) {
	struct itimerval soon = {{0, 0}, {0, 100000}};
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &soon, 0);
	interrupted();
	return 0;
}
