// latecalls N PLUGIN…: for each PLUGIN, loads it at a line of input, prints "loaded", calls its later() N times at the
// next line, prints "called", and unloads it at the next. Then it prints "truth CALLS". A PLUGIN that begins with "="
// is a program instead: at a line it becomes it, with the arguments behind it, and at once if it begins with "==".
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noipa)) static void wait_for_line(void) {
	char b[64];
	if (!fgets(b, sizeof b, stdin))
		exit(1);
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 2;
	int n = atoi(argv[1]), calls = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strncmp(argv[2], "==", 2)) // it would say so twice
		printf("ready %d\n", getpid());
	for (int i = 2; i < argc; i++) {
		if (!strncmp(argv[i], "==", 2)) {
			argv[i] += 2;
			execv(argv[i], argv + i);
			return 1;
		}
		wait_for_line();
		if (argv[i][0] == '=') {
			argv[i]++;
			execv(argv[i], argv + i);
			return 1;
		}
		void *lib = dlopen(argv[i], RTLD_NOW);
		if (!lib) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		int (*later)(int) = (int (*)(int))dlsym(lib, "later");
		printf("loaded\n");
		wait_for_line();
		for (int k = 0; k < n; k++)
			calls += later(k) >= 0;
		printf("called\n");
		wait_for_line();
		dlclose(lib);
	}
	printf("truth %d\n", calls);
}
