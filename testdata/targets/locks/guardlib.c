// A library with two locks: guard, which it exports, and hidden, whose name is
// gone once the file is stripped.
#include <pthread.h>

pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t hidden = PTHREAD_MUTEX_INITIALIZER;

pthread_mutex_t *guard_of(int which) { return which ? &hidden : &guard; }

int guard_enter(int which) { return pthread_mutex_lock(guard_of(which)); }
