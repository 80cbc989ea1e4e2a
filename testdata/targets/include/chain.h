// Runs scripts and reports every call with its times. A chain program defines
// its functions with CHAIN_BODY, lists them in a `struct shape` table and
// calls chain_main.
//
// The report has one JSON object a line for each call:
//
//	thread, tid    whose call it was
//	func           the function, as a symbolizer shows it without parameters
//	depth          functions of the report between it and the root; the root has 0
//	call, return   the caller's clock just before and just after the call
//	begin, end     the function's clock as its first and its last act
//	work           how it spends its own time: spin, sleep or poll
//
// and a last line {"summary":{…}}. Times are ns of CLOCK_MONOTONIC. The call
// truly begins in [call, begin] and ends in [end, return], however long the
// thread was kept from the CPU in between. Nothing is written, allocated or
// locked while a script runs.
#ifndef CHAIN_H
#define CHAIN_H
#include "script.h"

struct run;
typedef void chain_fn(struct run *, uint32_t);

struct rec {
	uint64_t call, begin, end, ret;
	uint32_t func;
};

// An extra is a call that is not in the script: recursion, signal handlers.
struct extra {
	struct rec rec;
	uint32_t depth; // added to that of `node`'s innermost frame
	uint32_t node;
};

// Numbers of the functions that are not part of the script, after the root's.
enum { CHAIN_DEEP = SCRIPT_ROOT + 1, CHAIN_SIGNAL, CHAIN_HANDLER, CHAIN_IOTA, CHAIN_KAPPA, CHAIN_SHAPES };

// The frames of one function, outermost first: what it calls to do its body
// comes after it.
enum { CHAIN_FRAMES = 3 };
struct shape {
	const char *frames[CHAIN_FRAMES];
};

struct run {
	struct script script;
	struct rec *recs;
	struct extra *extras;
	uint32_t extra_len, extra_cap;
	volatile uint32_t current; // node that runs, for the signal handler
	uint64_t interrupted;      // calls that returned EINTR
	chain_fn *table[SCRIPT_FUNCS];
	chain_fn *root;
	const struct shape *shapes;
	char name[16];
	int tid;
	uint64_t deep;
	const char *library; // to be loaded when half of the root's calls are made
	uint64_t deep_work; // ns that the recursion's innermost call takes
};

INLINE void chain_work(struct run *r, int work, uint64_t ns) {
	if (ns == 0)
		return;
	uint64_t deadline = prog_now() + ns, now;
	if (work == WORK_SPIN) {
		prog_spin(deadline);
		return;
	}
	while ((now = prog_now()) < deadline) {
		struct timespec t = {(time_t)((deadline - now) / 1000000000u), (long)((deadline - now) % 1000000000u)};
		int bad = work == WORK_SLEEP ? nanosleep(&t, NULL) : ppoll(NULL, 0, &t, NULL);
		if (bad < 0 && errno == EINTR)
			r->interrupted++;
	}
}

#ifndef CHAIN_CALL
#define CHAIN_CALL(r, child) (r)->table[(r)->script.nodes[child].func](r, child)
#endif
#define CHAIN_NONE (void)0

// CHAIN_BODY is what a function of the chain does for its node i: a macro,
// so that it adds no frame, inlined or real. BEFORE runs before each call.
#define CHAIN_BODY(r, i, ID, BEFORE) \
	do { \
		(r)->current = (i); \
		struct rec *me = &(r)->recs[i]; \
		me->begin = prog_now(); \
		me->func = (ID); \
		const struct node *n = &(r)->script.nodes[i]; \
		chain_work(r, n->work, n->pre); \
		for (uint32_t child = (i) + 1; child < (i) + n->size; child += (r)->script.nodes[child].size) { \
			BEFORE; \
			chain_work(r, n->work, (r)->script.nodes[child].gap); \
			(r)->recs[child].call = prog_now(); \
			CHAIN_CALL(r, child); \
			(r)->current = (i); \
			(r)->recs[child].ret = prog_now(); \
		} \
		chain_work(r, n->work, n->post); \
		me->end = prog_now(); \
		__asm__ volatile("" ::: "memory"); \
	} while (0)

#define CHAIN_FUNCTION(NAME, ID, LOCALS) \
	FRAME void NAME(struct run *r, uint32_t i) { \
		LOCALS; \
		CHAIN_BODY(r, i, ID, CHAIN_NONE); \
	}

// CHAIN_ROOM is a local array that the compiler must keep on the stack.
#define CHAIN_ROOM(TYPE, SIZE) \
	TYPE room[SIZE]; \
	__asm__ volatile("" : : "r"(room) : "memory")

struct chain_options {
	uint64_t seconds, seed, unit, threads, deep;
	const char *report, *library, *signals;
	int wait_go, wait_end;
};

static void chain_usage(const char *program) {
	fprintf(stderr,
	        "usage: %s [--seconds N] [--seed N] [--unit N] [--threads N] [--deep N] [--library FILE]\n"
	        "       [--signals normal|alt] [--report FILE] [--wait-go] [--wait-end]\n",
	        program);
	exit(2);
}

static MAYBE_UNUSED struct chain_options chain_parse(int argc, char **argv) {
	struct chain_options o = {1, 1, 6, 0, 0, NULL, NULL, NULL, 0, 0};
	static const struct option longs[] = {
	    {"seconds", 1, 0, 's'}, {"seed", 1, 0, 'r'},    {"unit", 1, 0, 'u'},   {"threads", 1, 0, 't'},
	    {"deep", 1, 0, 'd'},    {"library", 1, 0, 'l'}, {"signals", 1, 0, 'g'}, {"report", 1, 0, 'o'},
	    {"wait-go", 0, 0, 'w'}, {"wait-end", 0, 0, 'e'}, {0, 0, 0, 0}};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (c) {
		case 's': o.seconds = prog_number(optarg); break;
		case 'r': o.seed = prog_number(optarg); break;
		case 'u': o.unit = prog_number(optarg); break;
		case 't': o.threads = prog_number(optarg); break;
		case 'd': o.deep = prog_number(optarg); break;
		case 'l': o.library = optarg; break;
		case 'g': o.signals = optarg; break;
		case 'o': o.report = optarg; break;
		case 'w': o.wait_go = 1; break;
		case 'e': o.wait_end = 1; break;
		default: chain_usage(argv[0]);
		}
	if (optind != argc || o.unit == 0 || o.seconds == 0 || o.seconds > 600 || o.threads > 64 || o.deep > 1000000)
		chain_usage(argv[0]);
	return o;
}

enum { CHAIN_DEEP_ROUNDS = 3, CHAIN_SIGNALS = 4096 };

// chain_prepare makes and touches all that the timed part will use.
static MAYBE_UNUSED void chain_prepare(struct run *r, const struct chain_options *o, uint64_t thread) {
	script_make(&r->script, o->seconds, o->seed, o->unit, thread);
	r->recs = (struct rec *)malloc(r->script.len * sizeof *r->recs);
	r->extra_cap = CHAIN_SIGNALS + (uint32_t)o->deep * CHAIN_DEEP_ROUNDS;
	r->extras = (struct extra *)malloc(r->extra_cap * sizeof *r->extras);
	if (!r->recs || !r->extras)
		die("records");
	memset(r->recs, 0, r->script.len * sizeof *r->recs);
	memset(r->extras, 0, r->extra_cap * sizeof *r->extras);
	r->deep = o->deep;
	r->deep_work = o->seconds * 1000000000u / CHAIN_DEEP_ROUNDS;
}

// chain_start runs the script in the calling thread; its one frame above the
// root is not reported.
static MAYBE_UNUSED void chain_start(struct run *r) {
	r->tid = prog_tid();
	prctl(PR_GET_NAME, r->name, 0, 0, 0);
	r->recs[0].call = prog_now();
	r->root(r, 0);
	r->recs[0].ret = prog_now();
}

static void chain_row(FILE *f, const struct run *r, const struct rec *c, const char *func, unsigned depth, const char *work) {
	fprintf(f,
	        "{\"thread\":\"%s\",\"tid\":%d,\"func\":\"%s\",\"depth\":%u,\"call\":%" PRIu64 ",\"begin\":%" PRIu64
	        ",\"end\":%" PRIu64 ",\"return\":%" PRIu64 ",\"work\":\"%s\"}\n",
	        r->name, r->tid, func, depth, c->call, c->begin, c->end, c->ret, work);
}

// chain_write reports one thread and returns the number of lines.
static MAYBE_UNUSED uint64_t chain_write(FILE *f, const struct run *r) {
	static const char *const works[] = {"spin", "sleep", "poll"};
	uint64_t lines = 0;
	unsigned *inner = (unsigned *)calloc(r->script.len, sizeof *inner); // depth of each node's innermost frame
	unsigned at[SCRIPT_DEPTH + 2] = {0};                                // the same, by depth in the script
	if (!inner)
		die("report");
	for (uint32_t i = 0; i < r->script.len; i++) {
		const struct node *n = &r->script.nodes[i];
		const struct rec *c = &r->recs[i];
		if (c->begin == 0)
			continue; // the recursion replaces the script
		unsigned depth = n->depth == 0 ? 0 : at[n->depth - 1] + 1;
		for (int k = 0; k < CHAIN_FRAMES && r->shapes[c->func].frames[k]; k++, depth++, lines++)
			chain_row(f, r, c, r->shapes[c->func].frames[k], depth, works[n->work]);
		at[n->depth] = inner[i] = depth - 1;
	}
	for (uint32_t k = 0; k < r->extra_len; k++) {
		const struct extra *x = &r->extras[k];
		chain_row(f, r, &x->rec, r->shapes[x->rec.func].frames[0], inner[x->node] + x->depth, works[WORK_SPIN]);
		lines++;
	}
	free(inner);
	return lines;
}

// chain_finish writes the report of all threads and, if asked, waits to be
// let go.
static MAYBE_UNUSED void chain_finish(const struct chain_options *o, struct run *runs, uint64_t n) {
	if (o->report) {
		FILE *f = fopen(o->report, "w");
		if (!f)
			die(o->report);
		uint64_t calls = 0, interrupted = 0, script = 0;
		for (uint64_t k = 0; k < n; k++) {
			calls += chain_write(f, &runs[k]);
			interrupted += runs[k].interrupted;
			script += script_hash(&runs[k].script);
		}
		fprintf(f, "{\"summary\":{\"calls\":%" PRIu64 ",\"interrupted\":%" PRIu64 ",\"script\":\"%016" PRIx64 "\"}}\n",
		        calls, interrupted, script);
		if (fclose(f))
			die(o->report);
	}
	if (o->wait_end) {
		printf("done\n");
		fflush(stdout);
		prog_await();
	}
}
#endif
