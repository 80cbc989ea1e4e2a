// reload MODE A B: loads the plugins A and B in turn, calls run(), and unloads them.
//
//	swap       each from its own file
//	rename     both from one name, to which a copy is renamed
//	overwrite  both from one file, which is rewritten
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void copy(const char *from, const char *to) {
	static char b[1 << 16];
	FILE *in = fopen(from, "r"), *out = fopen(to, "w");
	if (!in || !out) {
		perror(in ? to : from);
		exit(1);
	}
	for (size_t n; (n = fread(b, 1, sizeof b, in)) > 0;)
		fwrite(b, 1, n, out);
	fclose(in);
	fclose(out);
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	char name[4096], next[4096];
	snprintf(name, sizeof name, "%s.plugin.so", argv[2]);
	snprintf(next, sizeof next, "%s.next.so", argv[2]);
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (int i = 0;; i++) {
		const char *from = argv[2 + i % 2];
		if (!strcmp(argv[1], "rename")) {
			copy(from, next);
			rename(next, name);
			from = name;
		} else if (!strcmp(argv[1], "overwrite")) {
			copy(from, name);
			from = name;
		}
		void *h = dlopen(from, RTLD_NOW);
		if (!h) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		void (*run)(void) = (void (*)(void))dlsym(h, "run");
		run();
		dlclose(h);
	}
}
