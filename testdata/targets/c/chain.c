// The chain in C: functions with frames of every shape, deep recursion,
// signal handlers on either stack, threads, and a library that is loaded in
// mid-run.
#include "chain.h"
#include <search.h>
#ifndef CHAIN_STATIC
#include <dlfcn.h>
#endif

#ifdef CHAIN_INLINE
// The body of alpha and epsilon in a function that is always inlined.
INLINE void chain_inlined(struct run *r, uint32_t i, uint32_t id) { CHAIN_BODY(r, i, id, CHAIN_NONE); }
#define INLINED "chain_inlined"
FRAME void chain_alpha(struct run *r, uint32_t i) { chain_inlined(r, i, 0); }
FRAME void chain_epsilon(struct run *r, uint32_t i) { chain_inlined(r, i, 4); }
#else
#define INLINED NULL
CHAIN_FUNCTION(chain_alpha, 0, )
CHAIN_FUNCTION(chain_epsilon, 4, )
#endif

// A frame whose size is known at run time only: its CFA hangs on a frame pointer.
CHAIN_FUNCTION(chain_beta, 1, CHAIN_ROOM(char, 16 + r->script.nodes[i].size % 64))

// A realigned frame: its CFA is a DWARF expression in optimised code.
CHAIN_FUNCTION(chain_gamma, 2, CHAIN_ROOM(_Alignas(64) char, 64))

// A frame larger than several pages.
CHAIN_FUNCTION(chain_delta, 3, CHAIN_ROOM(char, 20000))

// zeta calls through the C library: the library's frame is in between.
struct found {
	struct run *run;
	uint32_t node;
};

FRAME int chain_zeta_found(const void *key, const void *element) {
	(void)element;
	const struct found *f = (const struct found *)key;
	CHAIN_BODY(f->run, f->node, 5, CHAIN_NONE);
	return 0;
}

FRAME void chain_zeta(struct run *r, uint32_t i) {
	struct found f = {r, i};
	char element = 0;
	size_t one = 1;
	if (!lfind(&f, &element, &one, 1, chain_zeta_found))
		abort();
	__asm__ volatile("" ::: "memory");
}

CHAIN_FUNCTION(chain_eta, 6, )
CHAIN_FUNCTION(chain_theta, 7, )

// Recursion: call k of one descent reports itself in extras[base+k].
FRAME void chain_deep(struct run *r, uint32_t base, uint32_t k, int work) {
	struct rec *me = &r->extras[base + k].rec;
	me->begin = prog_now();
	me->func = CHAIN_DEEP;
	if (k + 1 < r->deep) {
		struct rec *next = &r->extras[base + k + 1].rec;
		next->call = prog_now();
		chain_deep(r, base, k + 1, work);
		next->ret = prog_now();
	} else {
		chain_work(r, work, r->deep_work);
	}
	me->end = prog_now();
	__asm__ volatile("" ::: "memory");
}

#ifdef CHAIN_STATIC
static void chain_load(struct run *r) {
	(void)r;
	fputs("a static program loads no library\n", stderr);
	exit(2);
}
#else
static void chain_load(struct run *r) {
	void *lib = dlopen(r->library, RTLD_NOW);
	if (lib) {
		r->table[6] = (chain_fn *)dlsym(lib, "chainlib_iota");
		r->table[7] = (chain_fn *)dlsym(lib, "chainlib_kappa");
	}
	if (!lib || !r->table[6] || !r->table[7]) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
	r->library = NULL;
}
#endif

FRAME void chain_root(struct run *r, uint32_t i) {
	if (r->deep == 0) {
		CHAIN_BODY(r, i, SCRIPT_ROOT, if (r->library && child >= r->script.len / 2) chain_load(r));
		return;
	}
	struct rec *me = &r->recs[i];
	me->begin = prog_now();
	me->func = SCRIPT_ROOT;
	for (int round = 0; round < CHAIN_DEEP_ROUNDS; round++) {
		uint32_t base = r->extra_len;
		r->extra_len += (uint32_t)r->deep;
		for (uint32_t k = 0; k < r->deep; k++)
			r->extras[base + k].depth = k + 1;
		chain_work(r, WORK_SLEEP, SCRIPT_APART * 1000);
		r->extras[base].rec.call = prog_now();
		chain_deep(r, base, 0, round % 3);
		r->extras[base].rec.ret = prog_now();
	}
	me->end = prog_now();
}

static const struct shape shapes[CHAIN_SHAPES] = {
    {{"chain_alpha", INLINED}},
    {{"chain_beta"}},
    {{"chain_gamma"}},
    {{"chain_delta"}},
    {{"chain_epsilon", INLINED}},
    {{"chain_zeta", "chain_zeta_found"}},
    {{"chain_eta"}},
    {{"chain_theta"}},
    {{"chain_root"}},
    {{"chain_deep"}},
    {{"chain_on_signal"}},
    {{"chain_handler"}},
    {{"chainlib_iota"}},
    {{"chainlib_kappa"}},
};

// The run that the timer's signals interrupt: the main thread's.
static struct run *signal_run;
static uint64_t signal_unit;
static volatile sig_atomic_t signal_on;

static void signal_arm(uint64_t us) {
	// setitimer by number: the same for every libc, and safe in a handler.
	long its[4] = {0, 0, (long)(us / 1000000), (long)(us % 1000000)};
	syscall(SYS_setitimer, 0, its, NULL);
}

FRAME void chain_handler(struct extra *x, uint64_t ns) {
	x->rec.begin = prog_now();
	x->rec.func = CHAIN_HANDLER;
	prog_spin(prog_now() + ns);
	x->rec.end = prog_now();
	__asm__ volatile("" ::: "memory");
}

FRAME void chain_on_signal(int number) {
	(void)number;
	uint64_t begin = prog_now();
	struct run *r = signal_run;
	if (!signal_on || r->extra_len + 2 > r->extra_cap)
		return;
	int saved = errno;
	uint32_t node = r->current;
	struct extra *me = &r->extras[r->extra_len], *work = me + 1;
	uint32_t round = r->extra_len / 2;
	me->rec.call = me->rec.begin = begin;
	me->rec.func = CHAIN_SIGNAL;
	me->node = work->node = node;
	me->depth = 1;
	work->depth = 2;
	uint64_t us = round % 3 == 1 ? 30000 + round * 7919 % 30000 : 2000;
	work->rec.call = prog_now();
	chain_handler(work, us * signal_unit * 1000 / 6);
	work->rec.ret = prog_now();
	r->extra_len += 2;
	signal_arm(60000 * signal_unit / 6);
	errno = saved;
	me->rec.end = me->rec.ret = prog_now();
}

static void signals_begin(struct run *r, const struct chain_options *o) {
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = chain_on_signal;
	sa.sa_flags = SA_RESTART;
	if (strcmp(o->signals, "alt") == 0) {
		stack_t alt;
		memset(&alt, 0, sizeof alt);
		alt.ss_size = 256 << 10;
		alt.ss_sp = malloc(alt.ss_size);
		if (!alt.ss_sp || sigaltstack(&alt, NULL))
			die("sigaltstack");
		sa.sa_flags |= SA_ONSTACK;
	} else if (strcmp(o->signals, "normal") != 0)
		chain_usage("chain");
	signal_run = r;
	signal_unit = o->unit;
	if (sigaction(SIGALRM, &sa, NULL))
		die("sigaction");
}

static pthread_barrier_t begin_barrier;

static void *worker(void *arg) {
	struct run *r = (struct run *)arg;
	char name[16];
	snprintf(name, sizeof name, "worker-%d", r->tid);
	pthread_setname_np(pthread_self(), name);
	pthread_barrier_wait(&begin_barrier);
	pthread_barrier_wait(&begin_barrier);
	chain_start(r);
	return NULL;
}

int main(int argc, char **argv) {
	struct chain_options o = chain_parse(argc, argv);
	uint64_t n = o.threads + 1;
	struct run *runs = (struct run *)calloc(n, sizeof *runs);
	pthread_t *threads = (pthread_t *)calloc(n, sizeof *threads);
	if (!runs || !threads)
		die("threads");
	if (o.signals)
		signals_begin(&runs[0], &o);
	chain_fn *table[SCRIPT_FUNCS] = {chain_alpha,   chain_beta, chain_gamma, chain_delta,
	                                 chain_epsilon, chain_zeta, chain_eta,   chain_theta};
	for (uint64_t k = 0; k < n; k++) {
		chain_prepare(&runs[k], &o, k);
		memcpy(runs[k].table, table, sizeof table);
		runs[k].root = chain_root;
		runs[k].shapes = shapes;
	}
	runs[0].library = o.library;
	for (uint64_t k = 1; k < n; k++)
		runs[k].deep = 0;

	sigset_t alarm_only;
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm_only, NULL); // inherited: the signal is main's
	pthread_barrier_init(&begin_barrier, NULL, (unsigned)n);
	for (uint64_t k = 1; k < n; k++) {
		runs[k].tid = (int)k - 1;
		if (pthread_create(&threads[k], NULL, worker, &runs[k]))
			die("pthread_create");
	}
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
	pthread_barrier_wait(&begin_barrier); // every worker has its name
	prog_ready(o.wait_go);
	pthread_barrier_wait(&begin_barrier);
	if (o.signals) {
		signal_on = 1;
		signal_arm(60000 * o.unit / 6);
	}
	chain_start(&runs[0]);
	signal_on = 0;
	signal_arm(0);
	for (uint64_t k = 1; k < n; k++)
		pthread_join(threads[k], NULL);
	chain_finish(&o, runs, n);
	return 0;
}
