// gdbjit FILE...: loads the code of each file, an unlinked ELF file,
// into the same memory in turn, registers it with GDB's JIT interface, and
// calls its first global function until a line is read. Prints "begins NAME"
// at the start, and then "NAME FROM TO", ns of CLOCK_MONOTONIC between which it certainly
// ran; the next one begins at another line.
#include "prog.h"
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

// As the manual of GDB has it, "JIT Compilation Interface".
struct jit_code_entry {
	struct jit_code_entry *next, *prev;
	const char *symfile_addr;
	uint64_t symfile_size;
};
struct jit_descriptor {
	uint32_t version, action_flag;
	struct jit_code_entry *relevant_entry, *first_entry;
};
FRAME void __jit_debug_register_code(void) { __asm__ volatile(""); }
struct jit_descriptor __jit_debug_descriptor = {1, 0, NULL, NULL};

static void tell(uint32_t action, struct jit_code_entry *e) {
	__jit_debug_descriptor.first_entry = action == 1 ? e : NULL;
	__jit_debug_descriptor.relevant_entry = e;
	__jit_debug_descriptor.action_flag = action;
	__jit_debug_register_code();
	__jit_debug_descriptor.action_flag = 0;
}

static volatile int stop;
static uint64_t until;

static void *bell(void *_) {
	(void)_;
	prog_await();
	until = prog_now();
	stop = 1;
	return NULL;
}

static char *load(const char *path, size_t *size) {
	int fd = open(path, O_RDONLY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st))
		die(path);
	char *b = malloc((size_t)st.st_size);
	if (!b || read(fd, b, (size_t)st.st_size) != st.st_size)
		die(path);
	close(fd);
	*size = (size_t)st.st_size;
	return b;
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	char *code = mmap(NULL, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		die("mmap");
	prog_ready(1);
	for (int i = 1; i < argc; i++) {
		size_t size;
		char *file = load(argv[i], &size);
		Elf64_Ehdr *h = (Elf64_Ehdr *)file;
		Elf64_Shdr *sections = (Elf64_Shdr *)(file + h->e_shoff);
		char *at = code;
		for (int s = 0; s < h->e_shnum; s++) {
			if (!(sections[s].sh_flags & SHF_EXECINSTR) || !sections[s].sh_size)
				continue;
			at += 256;
			memcpy(at, file + sections[s].sh_offset, sections[s].sh_size);
			sections[s].sh_addr = (Elf64_Addr)at;
			at += sections[s].sh_size;
		}
		__builtin___clear_cache(code, at);
		const char *name = NULL;
		int (*f)(volatile int *) = NULL;
		for (int s = 0; s < h->e_shnum; s++) {
			if (sections[s].sh_type != SHT_SYMTAB)
				continue;
			Elf64_Sym *y = (Elf64_Sym *)(file + sections[s].sh_offset);
			for (size_t k = 0; k < sections[s].sh_size / sizeof *y; k++) {
				if (ELF64_ST_TYPE(y[k].st_info) != STT_FUNC || ELF64_ST_BIND(y[k].st_info) != STB_GLOBAL)
					continue;
				name = file + sections[sections[s].sh_link].sh_offset + y[k].st_name;
				f = (int (*)(volatile int *))(sections[y[k].st_shndx].sh_addr + y[k].st_value);
			}
		}
		if (!f)
			return 3;
		struct jit_code_entry *e = calloc(1, sizeof *e);
		e->symfile_addr = file;
		e->symfile_size = size;
		tell(1, e);
		stop = 0;
		printf("begins %s\n", name);
		fflush(stdout);
		uint64_t from = prog_now();
		pthread_t t;
		if (pthread_create(&t, NULL, bell, NULL))
			die("pthread_create");
		f(&stop);
		pthread_join(t, NULL);
		printf("%s %" PRIu64 " %" PRIu64 "\n", name, from, until);
		fflush(stdout);
		prog_await(); // until the end of the call was seen
		tell(2, e);
		// The next one may be at the same places.
		free(file);
		free(e);
	}
	return 0;
}
