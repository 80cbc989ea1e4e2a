// latenames: two threads that compute in work() get their names, io-0 and db-0, some time
// after they began; the program ends by itself after two seconds.
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void work(void) {
	for (long i = 0; i < 10000000; i++)
		sink += i;
}

static void *thread(void *name) {
	usleep(200000);
	pthread_setname_np(pthread_self(), name);
	for (;;)
		work();
	return 0;
}

int main(void) {
	pthread_t t;
	pthread_create(&t, 0, thread, "io-0");
	pthread_create(&t, 0, thread, "db-0");
	sleep(2);
	return 0;
}
