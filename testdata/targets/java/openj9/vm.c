// Imitates Eclipse OpenJ9 as far as sliver detects it from outside: a launcher
// loads libjvm.so, which has JNI_CreateJavaVM and none of HotSpot's tables, and which
// loads libj9vm29.so. Built three times: -DVM is libj9vm29.so, -DJVM libjvm.so, without
// either the launcher, whose argument is the folder of the libraries.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *load(const char *dir, const char *name, const char *function) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	void *at = lib ? dlsym(lib, function) : NULL;
	if (!at) {
		fprintf(stderr, "%s: %s\n", path, dlerror());
		exit(1);
	}
	return at;
}

#ifdef VM
volatile unsigned long turns;

__attribute__((noinline)) void interpret(int depth) {
	if (depth > 0)
		interpret(depth - 1);
	else
		for (;;)
			turns++;
	turns += 2; // so that the call is none at the end
}

static void *java_thread(void *arg) {
	interpret(8);
	return arg;
}

int J9_CreateJavaVM(void) {
	pthread_t t;
	pthread_create(&t, NULL, java_thread, NULL);
	puts("running");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
#elif defined(JVM)
int JNI_CreateJavaVM(const char *dir) {
	int (*create)(void) = load(dir, "libj9vm29.so", "J9_CreateJavaVM");
	return create() + 1;
}
#else
int main(int argc, char **argv) {
	int (*create)(const char *) = load(argv[argc - 1], "libjvm.so", "JNI_CreateJavaVM");
	return create(argv[argc - 1]) - 1;
}
#endif
