// The script of a thread: a tree of calls with the time that each takes,
// made from a seed. The Go and Rust programs make the same trees; a test
// compares their hashes, so change all of them together.
//
// Times are chosen in µs and scaled by unit/6. Work is short (2 to 8 ms) or
// long (30 to 120 ms). A function is called again by the same activation
// only SCRIPT_APART after it returned: otherwise no sampler could distinguish
// two calls with one function, one frame address and one return address from
// a single call.
#ifndef SCRIPT_H
#define SCRIPT_H
#include "prog.h"

enum { SCRIPT_FUNCS = 8, SCRIPT_ROOT = 8, SCRIPT_DEPTH = 12, SCRIPT_APART = 45000 };
enum { WORK_SPIN, WORK_SLEEP, WORK_POLL };

// A node is one call; its children follow it, each `size` nodes long.
struct node {
	uint64_t gap;       // ns of the caller's own work before this call
	uint64_t pre, post; // ns of own work before the first and after the last call
	uint32_t size;      // nodes of the subtree, itself included
	uint16_t depth;     // 0: the root
	uint8_t func, work;
};

struct script {
	struct node *nodes;
	uint32_t len, cap;
	uint64_t state, unit;
};

static uint32_t script_random(struct script *s, uint32_t n) {
	s->state ^= s->state >> 12;
	s->state ^= s->state << 25;
	s->state ^= s->state >> 27;
	return (uint32_t)((s->state * 0x2545F4914F6CDD1Du) >> 32) % n;
}

static uint64_t script_time(struct script *s) {
	if (script_random(s, 3) == 0)
		return 30000 + script_random(s, 90001);
	return 2000 + script_random(s, 6001);
}

static uint64_t script_scale(struct script *s, uint64_t us) { return us * s->unit * 1000 / 6; }

// script_node appends a call with all that it calls and returns its length in
// unscaled µs. The root goes on until it is `budget` long.
static uint64_t script_node(struct script *s, int func, int depth, uint64_t budget) {
	if (s->len == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 1024;
		s->nodes = (struct node *)realloc(s->nodes, s->cap * sizeof *s->nodes);
		if (!s->nodes)
			die("script");
	}
	uint32_t i = s->len++;
	uint64_t pre = 0, post = 0;
	int work = WORK_SLEEP;
	if (depth > 0) {
		work = (int)script_random(s, 3);
		pre = script_random(s, 4) == 0 ? 0 : script_time(s);
	}
	uint64_t total = pre, last[SCRIPT_FUNCS];
	int called[SCRIPT_FUNCS] = {0};
	for (;;) {
		if (depth == 0 ? total >= budget
		               : depth >= SCRIPT_DEPTH || total + 30000 >= budget || script_random(s, 4) == 0)
			break;
		uint64_t gap = script_random(s, 4) == 0 ? script_time(s) : 0;
		int c = (int)script_random(s, SCRIPT_FUNCS);
		if (called[c] && total + gap < last[c] + SCRIPT_APART)
			gap = last[c] + SCRIPT_APART - total;
		total += gap;
		uint64_t most = depth == 0 ? 30000 + script_random(s, 600000) : total < budget ? budget - total : 0;
		uint32_t child = s->len;
		total += script_node(s, c, depth + 1, most);
		s->nodes[child].gap = script_scale(s, gap);
		last[c] = total;
		called[c] = 1;
	}
	if (depth > 0) {
		post = script_random(s, 2) ? script_time(s) : 0;
		if (total + post == 0)
			post = script_time(s);
	}
	struct node *n = &s->nodes[i];
	n->gap = 0;
	n->pre = script_scale(s, pre);
	n->post = script_scale(s, post);
	n->size = s->len - i;
	n->depth = (uint16_t)depth;
	n->func = (uint8_t)func;
	n->work = (uint8_t)work;
	return total + post;
}

// script_make makes the script of thread number `thread` (0: main).
static MAYBE_UNUSED void script_make(struct script *s, uint64_t seconds, uint64_t seed, uint64_t unit, uint64_t thread) {
	memset(s, 0, sizeof *s);
	s->unit = unit;
	s->state = (seed + 1000 * thread + 1) * 0x9E3779B97F4A7C15u;
	if (s->state == 0)
		s->state = 1;
	script_node(s, SCRIPT_ROOT, 0, seconds * 1000000 * 6 / unit);
}

// script_hash is FNV-1a over what the script does.
static MAYBE_UNUSED uint64_t script_hash(const struct script *s) {
	uint64_t h = 0xcbf29ce484222325u;
	for (uint32_t i = 0; i < s->len; i++) {
		const struct node *n = &s->nodes[i];
		uint64_t words[] = {n->func, n->work, n->depth, n->gap, n->pre, n->post};
		for (size_t w = 0; w < sizeof words / sizeof *words; w++)
			for (int b = 0; b < 64; b += 8)
				h = (h ^ ((words[w] >> b) & 255)) * 0x100000001b3u;
	}
	return h;
}
#endif
