// An agent that stops Java threads and reports their positions, from the virtual
// machine's own walk in a signal handler (AsyncGetCallTrace: the struct and its
// numbers are in src/hotspot/share/prims/forte.cpp of OpenJDK 17, 21 and 25).
//
// Its option is the path of a FIFO. For each line read from it, alternately, each
// thread of Work.java receives a signal and waits in its handler ("frozen TURN: THREADS"), or
// all continue, and their positions are printed ("stack TURN: NAME METHOD:LINE,…", innermost first,
// -1: no line; "told TURN:").
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <jvmti.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_THREADS = 16, MOST_FRAMES = 512 };

typedef struct {
	jint at; // the place in the method's code; below 0: there is none
	jmethodID method;
} Frame;

typedef struct {
	JNIEnv *env;
	jint n; // of frames; below 1: why there are none
	Frame *frames;
} Trace;

typedef struct {
	char name[64];
	atomic_int tid; // 0: not there yet
	JNIEnv *env;
	Trace trace;
	Frame frames[MOST_FRAMES];
} Thread;

static Thread threads[MOST_THREADS];
static atomic_int started, frozen;
static __thread Thread *self;
static void (*trace_of)(Trace *, jint depth, void *context);
static jvmtiEnv *jvmti;
static const char *fifo;
static int gate[2];

static void on_signal(int nr, siginfo_t *info, void *context) {
	(void)nr, (void)info;
	Thread *t = self;
	if (!t)
		return;
	int was = errno;
	t->trace = (Trace){t->env, 0, t->frames};
	trace_of(&t->trace, MOST_FRAMES, context);
	atomic_fetch_add(&frozen, 1);
	char c;
	while (read(gate[0], &c, 1) < 0 && errno == EINTR)
		;
	errno = was;
}

static void say_method(Frame *f) {
	char *name, *class_name;
	jclass class;
	if ((*jvmti)->GetMethodDeclaringClass(jvmti, f->method, &class) || (*jvmti)->GetClassSignature(jvmti, class, &class_name, NULL))
		return;
	if (!(*jvmti)->GetMethodName(jvmti, f->method, &name, NULL, NULL)) {
		int line = -1;
		jint n = 0;
		jvmtiLineNumberEntry *table;
		if (f->at >= 0 && !(*jvmti)->GetLineNumberTable(jvmti, f->method, &n, &table)) {
			jlocation best = -1;
			for (int i = 0; i < n; i++)
				if (table[i].start_location <= f->at && table[i].start_location > best) {
					best = table[i].start_location;
					line = table[i].line_number;
				}
			(*jvmti)->Deallocate(jvmti, (unsigned char *)table);
		}
		for (char *p = class_name; *p; p++)
			*p = *p == '/' ? '.' : *p == '.' ? '/' : *p;
		printf("%.*s.%s:%d,", (int)strlen(class_name) - 2, class_name + 1, name, line); // without the L and the semicolon
		(*jvmti)->Deallocate(jvmti, (unsigned char *)name);
	}
	(*jvmti)->Deallocate(jvmti, (unsigned char *)class_name);
}

static void freeze(int turn) {
	if (pipe(gate))
		exit(1);
	atomic_store(&frozen, 0);
	int n = 0;
	for (int i = 0; i < MOST_THREADS; i++)
		if (threads[i].tid && !syscall(SYS_tgkill, getpid(), threads[i].tid, SIGPROF))
			n++;
	while (atomic_load(&frozen) < n)
		usleep(1000);
	printf("frozen %d: %d\n", turn, n);
	fflush(stdout);
}

static void thaw(int turn) {
	close(gate[1]); // their reads end
	for (int i = 0; i < MOST_THREADS; i++) {
		Thread *t = &threads[i];
		if (!t->tid)
			continue;
		printf("stack %d: %s ", turn, t->name);
		for (int k = 0; k < t->trace.n; k++)
			say_method(&t->frames[k]);
		printf("\n");
	}
	printf("told %d:\n", turn);
	fflush(stdout);
}

static void JNICALL obey(jvmtiEnv *ti, JNIEnv *env, void *arg) {
	(void)ti, (void)env, (void)arg;
	FILE *in = fopen(fifo, "r");
	char line[64];
	for (int turn = 0; in && fgets(line, sizeof line, in); turn++)
		turn % 2 ? thaw(turn / 2) : freeze(turn / 2);
}

static void know_methods(jclass class) {
	jint n;
	jmethodID *ids; // a walk from a signal handler cannot make them
	if (!(*jvmti)->GetClassMethods(jvmti, class, &n, &ids))
		(*jvmti)->Deallocate(jvmti, (unsigned char *)ids);
}

static void JNICALL on_class(jvmtiEnv *ti, JNIEnv *env, jthread thread, jclass class) {
	(void)ti, (void)env, (void)thread;
	know_methods(class);
}

static void JNICALL on_load(jvmtiEnv *ti, JNIEnv *env, jthread thread, jclass class) {
	(void)ti, (void)env, (void)thread, (void)class; // the virtual machine wants it to be asked for
}

static void JNICALL on_thread(jvmtiEnv *ti, JNIEnv *env, jthread thread) {
	static const char *const work[] = {"recursion", "sorting", "maps", "copying", "objects"}; // Work.java
	jvmtiThreadInfo info;
	if ((*ti)->GetThreadInfo(ti, thread, &info))
		return;
	for (unsigned i = 0; i < sizeof work / sizeof *work; i++)
		if (!strcmp(info.name, work[i])) {
			Thread *t = &threads[atomic_fetch_add(&started, 1) % MOST_THREADS];
			snprintf(t->name, sizeof t->name, "%s", info.name);
			t->env = env;
			self = t;
			atomic_store(&t->tid, syscall(SYS_gettid));
		}
}

static void JNICALL on_init(jvmtiEnv *ti, JNIEnv *env, jthread thread) {
	(void)thread;
	jint n;
	jclass *all;
	if (!(*ti)->GetLoadedClasses(ti, &n, &all))
		for (int i = 0; i < n; i++)
			know_methods(all[i]);
	jclass class = (*env)->FindClass(env, "java/lang/Thread");
	jobject mine = (*env)->NewObject(env, class, (*env)->GetMethodID(env, class, "<init>", "()V"));
	if (!mine || (*ti)->RunAgentThread(ti, mine, obey, NULL, JVMTI_THREAD_NORM_PRIORITY))
		exit(1);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
	(void)reserved;
	fifo = strdup(options);
	trace_of = (void (*)(Trace *, jint, void *))dlsym(RTLD_DEFAULT, "AsyncGetCallTrace");
	if (!trace_of) {
		void *lib = dlopen("libjvm.so", RTLD_NOW | RTLD_NOLOAD);
		trace_of = lib ? (void (*)(Trace *, jint, void *))dlsym(lib, "AsyncGetCallTrace") : NULL;
	}
	if (!trace_of || (*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2))
		return JNI_ERR;
	jvmtiCapabilities can = {.can_get_line_numbers = 1};
	jvmtiEventCallbacks on = {.VMInit = on_init, .ClassLoad = on_load, .ClassPrepare = on_class, .ThreadStart = on_thread};
	if ((*jvmti)->AddCapabilities(jvmti, &can) || (*jvmti)->SetEventCallbacks(jvmti, &on, sizeof on))
		return JNI_ERR;
	jvmtiEvent events[] = {JVMTI_EVENT_VM_INIT, JVMTI_EVENT_CLASS_LOAD, JVMTI_EVENT_CLASS_PREPARE, JVMTI_EVENT_THREAD_START};
	for (unsigned i = 0; i < sizeof events / sizeof *events; i++)
		if ((*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, events[i], NULL))
			return JNI_ERR;
	struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	return sigaction(SIGPROF, &a, NULL) ? JNI_ERR : JNI_OK;
}
