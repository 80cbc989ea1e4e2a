// Maps as many files as the kernel lets a process have, each for itself and with the right to
// execute, and computes in one of them. Options: --files N (mappings of files, each of its own file
// below --in), --in FOLDER, --remap (one thread maps and unmaps more all the while), --wait-go.
// The files are ELF headers that promise more than the files hold.
#include "prog.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>

static const char *in;

FRAME void mappings_work(void) { prog_spin(prog_now() + 3600 * 1000000000ull); }

static int file(uint64_t i) {
	char path[4096];
	snprintf(path, sizeof path, "%s/lib%" PRIu64 ".so", in, i);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
	if (fd < 0)
		die(path);
	Elf64_Ehdr h = {.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_ehsize = sizeof h,
	                .e_phoff = sizeof h, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 0xfffe,
	                .e_shoff = 1ull << 40, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 0xff00, .e_shstrndx = 0xfeff};
	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64, h.e_ident[EI_DATA] = ELFDATA2LSB, h.e_ident[EI_VERSION] = EV_CURRENT;
	if (write(fd, &h, sizeof h) != sizeof h || ftruncate(fd, 4096) != 0)
		die(path);
	return fd;
}

static void *remap(void *arg) {
	int a = file(1000000), b = file(1000001);
	for (;;) {
		void *p = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, a, 0);
		void *q = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, b, 0);
		if (p == MAP_FAILED || q == MAP_FAILED)
			die("mmap");
		munmap(p, 8192);
		munmap(q, 4096);
	}
	return arg;
}

int main(int argc, char **argv) {
	uint64_t files = 100;
	int again = 0, wait_go = 0;
	static const struct option longs[] = {{"files", 1, 0, 'f'}, {"in", 1, 0, 'i'}, {"remap", 0, 0, 'r'}, {"wait-go", 0, 0, 'w'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 'f': files = prog_number(optarg); break;
		case 'i': in = optarg; break;
		case 'r': again = 1; break;
		case 'w': wait_go = 1; break;
		default: return 2;
		}
	for (uint64_t i = 0; i < files; i++) {
		int fd = file(i);
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			die("mmap");
		close(fd);
	}
	pthread_t t;
	if (again && pthread_create(&t, NULL, remap, NULL))
		die("pthread_create");
	prog_ready(wait_go);
	mappings_work();
	return 0;
}
